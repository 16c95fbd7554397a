// SPDX-License-Identifier: Apache-2.0
// An HTTP server for a classifier: serve FOLDER [PORT [ADDRESS]], by default 8080 and 127.0.0.1.
//   POST /predict  {"texts": ["…"]} -> {"predictions": [{"label", "probability", "probabilities"} or {"error"}]}
//   GET /health    GET /metrics, for Prometheus
#include <hkt/predictor.h>
#include <httplib.h>
#include <signal.h>

#include <condition_variable>
#include <deque>
#include <future>
#include <iostream>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

namespace {

using nlohmann::json;
using Texts = std::vector<std::string>;

constexpr std::size_t most_body = 1 << 20, most_texts = 256, most_waiting = 4096, at_once = 512, connections = 256;

struct Metrics {
  std::array<std::atomic<long>, 6> requests{};  // by the first digit of the status
  std::atomic<long> texts = 0, batches = 0, waiting = 0;
};

// Texts of concurrent requests are computed together: whatever has arrived while the last batch was computed.
class Batcher {
 public:
  Batcher(const hkt::Predictor& predictor, Metrics& metrics)
      : predictor_(predictor), metrics_(metrics), worker_([this](const std::stop_token& stop) { work(stop); }) {}

  std::future<std::vector<hkt::Prediction>> add(Texts texts) {  // not valid if the queue is full
    const std::lock_guard lock(mutex_);
    if (metrics_.waiting + texts.size() > most_waiting) return {};
    metrics_.waiting += std::ssize(texts);
    jobs_.push_back({std::move(texts), {}});
    changed_.notify_one();
    return jobs_.back().answers.get_future();
  }

 private:
  struct Job {
    Texts texts;
    std::promise<std::vector<hkt::Prediction>> answers;
  };

  void work(const std::stop_token& stop) {
    for (std::unique_lock lock(mutex_);; lock.lock()) {
      if (!changed_.wait(lock, stop, [this] { return !jobs_.empty(); })) return;
      std::vector<Job> batch;
      Texts all;
      for (; !jobs_.empty() && all.size() < at_once; jobs_.pop_front()) {
        batch.push_back(std::move(jobs_.front()));
        all.insert(all.end(), batch.back().texts.begin(), batch.back().texts.end());
      }
      lock.unlock();
      metrics_.texts += std::ssize(all), metrics_.batches += 1;
      answer(batch, all);
      metrics_.waiting -= std::ssize(all);
    }
  }

  void answer(std::vector<Job>& batch, const Texts& all) try {
    const auto answers = predictor_.predict(all);
    for (auto next = answers.begin(); auto& job : batch) {
      job.answers.set_value({next, next + std::ssize(job.texts)});
      next += std::ssize(job.texts);
    }
  } catch (const std::exception& error) {  // these requests get status 500, from their broken promises
    std::cerr << "serve: " << error.what() << '\n';
  }

  const hkt::Predictor& predictor_;
  Metrics& metrics_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<Job> jobs_;
  std::jthread worker_;  // stopped and waited for by its destructor
};

void reply(httplib::Response& response, int status, const json& body) {
  response.status = status;
  response.set_content(body.dump(-1, ' ', false, json::error_handler_t::replace) + "\n", "application/json");
}

void predict(const httplib::Request& request, httplib::Response& response, Batcher& batcher, const Texts& labels) {
  const auto body = json::parse(request.body, nullptr, false);
  const bool has_texts = body.contains("texts") && body["texts"].is_array();  // false unless it is an object
  if (!has_texts || body["texts"].size() > most_texts || !std::ranges::all_of(body["texts"], &json::is_string))
    return reply(response, 400, {{"error", R"(the body must be {"texts": ["…", …]}, at most 256 of them)"}});
  auto pending = batcher.add(body["texts"].get<Texts>());
  if (!pending.valid()) return reply(response, 503, {{"error", "too many texts are waiting; try again"}});
  auto predictions = json::array();
  for (const auto& answer : pending.get()) {
    json all;
    for (std::size_t i = 0; i < answer.probabilities.size(); ++i) all[labels[i]] = answer.probabilities[i];
    const json good = {{"label", answer.label}, {"probability", answer.probability}, {"probabilities", all}};
    predictions.push_back(answer.error.empty() ? good : json{{"error", answer.error}});
  }
  reply(response, 200, {{"predictions", predictions}});
}

std::string text_of(const Metrics& metrics) {
  std::ostringstream text;
  for (const int first : {2, 4, 5})
    text << "hkt_requests_total{status=\"" << first << "xx\"} " << metrics.requests.at(first) << '\n';
  text << "hkt_texts_total " << metrics.texts << "\nhkt_batches_total " << metrics.batches << "\nhkt_waiting_texts "
       << metrics.waiting << '\n';
  return text.str();
}

void serve(const hkt::Predictor& predictor, const std::string& address, int port, const sigset_t& stop) {
  Metrics metrics;
  Batcher batcher(predictor, metrics);
  httplib::Server server;
  server.new_task_queue = [] { return new httplib::ThreadPool(connections); };  // a thread for each connection
  server.set_payload_max_length(most_body).set_keep_alive_max_count(1'000'000).set_tcp_nodelay(true);
  int socket = -1;
  server.set_socket_options([&](int made) {  // by default a second server would share the port, and the requests
    ::setsockopt(socket = made, SOL_SOCKET, SO_REUSEADDR, std::array{1}.data(), sizeof(int));
  });
  server.set_logger([&](const auto&, const auto& response) { ++metrics.requests.at(response.status / 100); });
  server.Post("/predict", [&](const auto& in, auto& out) { predict(in, out, batcher, predictor.labels()); });
  server.Get("/health", [](const auto&, auto& out) { out.set_content("ok\n", "text/plain"); });
  server.Get("/metrics", [&](const auto&, auto& out) { out.set_content(text_of(metrics), "text/plain"); });
  if (!server.bind_to_port(address, port)) throw std::runtime_error("the port cannot be had; is it in use?");
  ::listen(socket, connections);  // the library lets five connections wait, and the system resets those beyond
  std::jthread listener([&] { server.listen_after_bind(); });
  while (!server.is_running()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  std::cout << "listening on http://" << address << ':' << port << std::endl;
  ::sigwaitinfo(&stop, nullptr);
  server.stop();  // no new connections; requests that have begun are answered
}

}  // namespace

int main(int count, char** arguments) try {
  if (count < 2 || count > 4) throw std::invalid_argument("usage: serve FOLDER [PORT [ADDRESS]]");
  sigset_t stop;  // waited for by this thread, blocked in all others
  ::sigemptyset(&stop), ::sigaddset(&stop, SIGINT), ::sigaddset(&stop, SIGTERM);
  ::pthread_sigmask(SIG_BLOCK, &stop, nullptr);
  const hkt::Predictor predictor(arguments[1]);
  serve(predictor, count > 3 ? arguments[3] : "127.0.0.1", count > 2 ? std::stoi(arguments[2]) : 8080, stop);
} catch (const std::exception& error) {
  std::cerr << "serve: " << error.what() << '\n';
  return 1;
}
