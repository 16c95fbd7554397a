# SPDX-License-Identifier: Apache-2.0
# An HTTP server for one file, which misbehaves as it is told.
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class FileServer:
    """Serves `content` at every path. `plan` says how to answer each request, the last of it all further ones:
    "good"; "ignore": the whole file though a part was asked for; ("cut", n): the connection breaks after n bytes;
    ("status", code); ("redirect", url); "misplaced": another part than was asked for; "corrupt": one byte is wrong;
    "endless": no length is told, and the connection closes early."""

    def __init__(self, content, plan=("good",)):
        self.content, self.plan, self.ranges = content, list(plan), []
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), self.handler())
        self.url = f"http://127.0.0.1:{self.server.server_port}/archive.tar.gz"

    def __enter__(self):
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()

    def handler(self):
        owner = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                owner.answer(self)

            def log_message(self, *_):
                pass

        return Handler

    def answer(self, request):
        asked = request.headers.get("Range")
        self.ranges.append(asked)
        how = self.plan.pop(0) if len(self.plan) > 1 else self.plan[0]
        kind, value = how if isinstance(how, tuple) else (how, None)
        begin = int(asked.removeprefix("bytes=").rstrip("-")) if asked and kind != "ignore" else 0
        if kind == "status":
            return self.send(request, value, b"<html>an error page, no part of the file</html>")
        if kind == "redirect":
            return self.send(request, 302, b"<html>elsewhere</html>", {"Location": value})
        if begin >= len(self.content):
            return self.send(request, 416, b"", {"Content-Range": f"bytes */{len(self.content)}"})
        content = bytearray(self.content)
        if kind == "corrupt":
            content[len(content) // 2] ^= 1
        if kind == "misplaced" and begin > 0:
            begin -= 1
        headers = {"Content-Range": f"bytes {begin}-{len(content) - 1}/{len(content)}"} if begin > 0 else {}
        end = min(begin + value, len(content)) if kind == "cut" else len(content)
        if kind == "endless":
            headers, end = {"Content-Length": None}, begin + (len(content) - begin) // 2
        self.send(request, 206 if begin > 0 else 200, bytes(content[begin:]), headers, end - begin)

    @staticmethod
    def send(request, status, body, headers=(), sent=None):
        request.send_response(status)
        for name, value in ({"Content-Length": str(len(body))} | dict(headers)).items():
            if value is not None:
                request.send_header(name, value)
        request.end_headers()
        request.wfile.write(body[:sent])
        request.wfile.flush()
        request.close_connection = True
