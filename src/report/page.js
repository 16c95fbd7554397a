// SPDX-License-Identifier: Apache-2.0
// Draws the report from the data embedded in the page. Every figure gets a caption and a description for screen readers.
'use strict';

const data = JSON.parse(document.getElementById('data').textContent);
const page = document.getElementById('page');
const ink = getComputedStyle(document.documentElement);
const color = name => ink.getPropertyValue(name).trim();
// Of an experiment's runs the page has the first seed's, one for each model, and calls them by the model's name where no other
// experiment is near. Runs of several experiments may share a name.
data.runs.forEach(run => {
  const own = data.comparisons.find(c => c.experiment === run.experiment);
  const model = own && own.models.find(m => m.runs[0] === run.name);
  run.label = model ? model.name : run.name;
});
if (data.comparisons.length > 1) data.runs.forEach(run => { if (run.experiment) run.name = run.experiment + ' ' + run.name; });
const palette = ['#2f6fde', '#e07b39', '#2a9d6f', '#c2489d', '#8a63d2', '#b8860b', '#3aa6b9', '#d1495b'];
const dashes = ['solid', 'dash', 'dot', 'dashdot'];

function element(tag, text, options = {}) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  for (const [name, value] of Object.entries(options)) made.setAttribute(name, value);
  return made;
}
const add = (parent, ...children) => { parent.append(...children); return parent; };
const percent = x => (100 * x).toFixed(2) + ' %';
const short = x => x === null || x === undefined ? '–' : Math.abs(x) >= 1e-3 && Math.abs(x) < 1e4 ? x.toFixed(3) : x.toExponential(1);
const finite = x => typeof x === 'number' && Number.isFinite(x);

function section(title, text) {
  add(page, element('h2', title));
  if (text) add(page, element('p', text));
  const grid = add(page, element('div', undefined, { class: 'grid' })).lastElementChild;
  return grid;
}

// Drawn after the page is laid out, because a plot takes the width of its container.
const plots = [];

function figure(parent, title, caption, description, traces, layout = {}, height) {
  const plot = element('div', undefined, { class: 'plot', role: 'img', 'aria-label': title + '. ' + description });
  if (height) plot.style.height = height + 'rem';
  const made = element('figure');
  add(made, element('h3', title), plot, element('figcaption', caption));
  add(parent, made);
  const axis = { gridcolor: color('--line'), zerolinecolor: color('--line'), automargin: true };
  const { xaxis = {}, yaxis = {}, yaxis2, ...rest } = layout;
  plots.push([plot, () => Plotly.newPlot(plot, traces, {
    paper_bgcolor: 'rgba(0,0,0,0)', plot_bgcolor: 'rgba(0,0,0,0)', font: { color: color('--ink'), size: 12 },
    margin: { l: 50, r: 16, t: 8, b: 40 }, legend: { orientation: 'h', y: -0.25 }, colorway: palette,
    xaxis: { ...axis, ...xaxis }, yaxis: { ...axis, ...yaxis }, ...(yaxis2 ? { yaxis2: { ...axis, ...yaxis2 } } : {}),
    ...rest,
  }, { responsive: true, displayModeBar: false })]);
}

function table(parent, heads, rows) {
  const made = element('table');
  const head = element('tr');
  heads.forEach(text => add(head, element('th', text, { scope: 'col' })));
  add(made, add(element('thead'), head));
  const body = element('tbody');
  rows.forEach(cells => {
    const row = element('tr');
    cells.forEach(cell => add(row, element('td', cell)));
    add(body, row);
  });
  add(made, body);
  add(parent, add(element('div', undefined, { class: 'scroll' }), made));
}

const isLanguage = run => run.config.model.kind === 'language';
const classifiers = runs => runs.filter(run => !isLanguage(run));
const languageModels = runs => runs.filter(isLanguage);
const bits = x => x.toFixed(3);
const signed = (x, digits) => (x >= 0 ? '+' : '−') + Math.abs(x).toFixed(digits);
// A score of a run: an accuracy, or bits per byte.
const scored = (run, accuracy, perByte) => isLanguage(run) ? bits(perByte) + ' bits per byte' : percent(accuracy);
const duration = seconds => seconds < 120 ? seconds.toFixed(0) + ' s' : (seconds / 60).toFixed(1) + ' min';
const amount = n => n < 1e6 ? (n / 1e3).toFixed(0) + ' kB' : n < 1e9 ? (n / 1e6).toFixed(n < 1e7 ? 2 : 1) + ' MB' : (n / 1e9).toFixed(2) + ' GB';

const last = list => list[list.length - 1];
const epochs = run => run.epochs.map(e => e.epoch + 1);
const mean = list => list.reduce((a, b) => a + b, 0) / list.length;

// The tests of normality of a head's levels, or of one level; older files call them gaussianity.
const testsOf = part => part.normality || part.gaussianity;

// Mean over blocks and heads of a value from the per-epoch theory metrics, by level.
function probed(run, pick) {
  const points = (run.probes || []).filter(p => p.theory);
  const levels = run.config.model.levels;
  return Array.from({ length: levels }, (_, level) => ({
    level,
    x: points.map(p => p.epoch),
    y: points.map(p => {
      const values = p.theory.flatMap(b => b.heads.map(h => pick(testsOf(h)[level]))).filter(finite);
      return values.length ? mean(values) : null;
    }),
  })).filter(series => series.y.some(finite));
}

const published = data.published || { paper: {}, long_range_arena: {} };
const probability = p => p < 1e-3 ? p.toExponential(1) : p.toFixed(3);
const spread = (m, c) => m.mean.toFixed(2) + (c.seeds.length > 1 ? ' ± ' + m.deviation.toFixed(2) : '') + ' %';

const titleOf = c => c.experiment + ', ' + c.budget + ' budget, ' + (c.seeds.length > 1 ? 'seeds ' : 'seed ') + c.seeds.join(', ');
const stepCells = m => [finite(m.step_seconds) ? (1e3 * m.step_seconds).toFixed(1) + ' ms' : '–', finite(m.step_ratio) ? m.step_ratio.toFixed(2) + '×' : '–'];

function list(texts) {
  if (texts.length && texts.length < 16) add(page, add(element('ul', undefined, { class: 'soft' }), ...texts.map(text => element('li', text))));
}

function classifierTable(c) {
  const first = c.models[0];
  table(page, ['name', 'model', 'parameters', 'test accuracy', 'vs. ' + first.name, 'step', 'ratio'], c.models.map(m => [
    m.name, m.what, m.parameters.toLocaleString('en'), spread(m, c), m === first ? '' : signed(m.mean - first.mean, 2), ...stepCells(m)]));
  const points = pair => ' [' + pair.map(x => signed(x, 2)).join(', ') + ']';
  const tests = c.comparisons.map(t => t.model + ' against ' + t.with + ': ' + signed(t.gain, 2) +
    (t.interval ? points(t.interval) + ' paired by seed' : '') + (t.sequences_interval ? ',' + points(t.sequences_interval) + ' over sequences' : '') +
    (t.verdict ? ', ' + t.verdict : '') +
    (t.paired_t_test_p === null ? '' : ', paired t-test p = ' + probability(t.paired_t_test_p)) + ', McNemar p by seed ' + t.mcnemar_p.map(probability).join(', '));
  if (tests.length < 10) list(tests);
  const paper = published.paper[c.experiment];
  if (paper) add(page, element('p', 'The paper reports ' + paper.standard[0].toFixed(2) + ' % for standard attention and ' + paper.hkt[0].toFixed(2) +
    ' % for HKT. The text available to us does not describe its models and data, so gains can be compared, but not absolute accuracies.', { class: 'soft' }));
}

const interval = pair => '[' + pair.map(x => signed(x, 3)).join(', ') + ']';

function languageTable(c) {
  const first = c.models[0], several = c.seeds.length > 1;
  table(page, ['name', 'model', 'parameters', 'bytes read', 'bits per byte', 'vs. ' + first.name, 'training', 'step'], c.models.map(m => [
    m.name, m.what, m.parameters.toLocaleString('en'), amount(m.tokens), bits(m.mean) + (several ? ' ± ' + bits(m.deviation) : ''),
    m === first ? '' : signed(m.mean - first.mean, 3), duration(m.training_seconds), last(stepCells(m))]));
  list(c.comparisons.map(t => t.model + ' against ' + t.with + ': ' + signed(t.difference, 3) + ' bits per byte' +
    (t.interval ? ' ' + interval(t.interval) + ' paired by seed' : '') + (t.welch_interval ? ', ' + interval(t.welch_interval) + ' by Welch' : '') +
    ', ' + t.verdict));
  add(page, element('p', 'Bits per byte are those of the test text; fewer are better. The step is its time, over that of ' + first.name + '. ' + (several
    ? 'Brackets: 95 % intervals of the difference; where one contains zero, nothing is decided.'
    : 'With one seed there is no interval: nothing says whether another seed would give the same order.'), { class: 'soft' }));
  const run = data.runs.find(r => r.experiment === c.experiment && isLanguage(r));
  if (run) add(page, element('p', textOf(run), { class: 'soft' }));
}

// What a language model has read, and how.
const textOf = run => 'Text: ' + (run.config.data.train || run.config.data.task) +
  (run.config.data.pattern && run.config.data.pattern !== '*' ? ', files ' + run.config.data.pattern : '') + '. Contexts of ' + run.config.model.max_length.toLocaleString('en') +
  ' bytes, ' + run.config.train.batch + ' a step. On test every byte is scored once, with at least half a context before it.';

function answer() {
  add(page, element('h1', data.title));
  (data.answers || []).forEach(text => add(page, element('p', text, { class: 'answer' })));
  const single = data.runs.filter(run => !run.experiment);
  if (single.length) runsTable(single);
  data.comparisons.forEach(c => {
    add(page, element('h3', titleOf(c)));
    (c.kind === 'language' ? languageTable : classifierTable)(c);
  });
}

function runsTable(runs) {
  table(page, ['run', 'model', 'parameters', 'best validation', 'test', 's/epoch'], runs.map(run => [
    run.name, run.summary, run.parameters.toLocaleString('en'), finite(run.best_validation) ? scored(run, run.best_validation, run.best_validation) : '–',
    run.test ? scored(run, run.test.accuracy, run.test.bits_per_byte) : '–', run.epochs.length ? mean(run.epochs.map(e => e.seconds)).toFixed(1) : '–',
  ]));
}

function architecture() {
  const grid = section('Figure 1: the models and their level weights',
    'Each attention layer sees its input at L resolutions. Level l has half as many tokens as level l − 1; its scores are weighted by λ, learned for each head.');
  data.runs.filter(run => run.config.model.levels > 1 && run.epochs.length).forEach(run => {
    const weights = last(run.epochs).level_weights;
    const rows = weights.flatMap((block, b) => block.map((head, h) => ({ name: 'block ' + b + ', head ' + h, head })));
    const levels = rows[0].head.map((_, l) => 'level ' + l);
    const description = rows.map(r => r.name + ': ' + r.head.map(x => x.toFixed(2)).join(', ')).join('; ');
    figure(grid, run.name + ': λ', run.summary + '. Weights after the last epoch; 1/L everywhere at the start.', description,
      [{ type: 'heatmap', x: levels, y: rows.map(r => r.name), z: rows.map(r => r.head), colorscale: 'Blues', reversescale: true, zmin: 0,
        texttemplate: '%{z:.2f}', hovertemplate: '%{y}, %{x}: %{z:.3f}<extra></extra>' }],
      { yaxis: { autorange: 'reversed' } });
  });
  dropIfEmpty(grid);
}

function learning() {
  const own = classifiers(data.runs);
  const grid = section(own.length || data.comparisons.some(c => c.kind !== 'language') ? 'Figure 2: accuracy' : 'Figure 2: how Gaussian the scores are');
  [...new Set(own.map(run => run.experiment))].forEach(experiment => {
    const runs = own.filter(run => run.experiment === experiment);
    figure(grid, 'Validation accuracy by epoch' + (experiment ? ', ' + experiment : ''), 'One line for each run.',
      runs.map(r => r.name + (r.epochs.length ? ' ends at ' + percent(last(r.epochs).validation_accuracy) : ' has no finished epoch')).join('; '),
      runs.map(run => ({ x: epochs(run), y: run.epochs.map(e => 100 * e.validation_accuracy), name: run.name, mode: 'lines+markers' })),
      { xaxis: { title: { text: 'epoch' } }, yaxis: { title: { text: '%' } } });
  });
  accuracyBars(grid);
  widthFigures(grid);
  data.runs.forEach(run => kurtosisFigure(grid, run));
  dropIfEmpty(grid);
}

function kurtosisFigure(grid, run) {
  const series = probed(run, t => t.kurtosis);
  if (!series.length) return;
  const gaussian = probed(run, t => t.gaussian_kurtosis);
  figure(grid, run.name + ': κ by epoch', 'Mardia’s kurtosis of each level’s scores, mean over blocks and heads; dotted: the value for Gaussian scores.',
    series.map(s => 'level ' + s.level + ' ends at ' + short(last(s.y))).join('; '),
    [...series.map((s, i) => ({ x: s.x, y: s.y, name: 'level ' + s.level, mode: 'lines+markers', line: { color: palette[i] } })),
      ...gaussian.map(s => ({ x: s.x, y: s.y, name: 'Gaussian, level ' + s.level, line: { dash: 'dot', color: palette[s.level] }, mode: 'lines', showlegend: false }))],
    { xaxis: { title: { text: 'epoch' } }, yaxis: { title: { text: 'κ' } } });
}

// A section of which nothing was drawn, with its title and text.
function dropIfEmpty(grid) {
  if (grid.childElementCount) return;
  while (grid.previousElementSibling.tagName !== 'H2') grid.previousElementSibling.remove();
  grid.previousElementSibling.remove();
  grid.remove();
}

const tokensSeen = run => run.epochs.map(e => e.step * run.config.train.batch * run.config.model.max_length / 1e6);
function secondsSpent(run) {
  let sum = 0;
  return run.epochs.map(e => sum += e.seconds);
}

function language() {
  const own = languageModels(data.runs);
  if (!own.length) return;
  add(page, element('h2', 'Language models'));
  [...new Set(own.map(run => run.experiment))].forEach(experiment => {
    const runs = own.filter(run => run.experiment === experiment && run.epochs.length);
    if (!runs.length) return;
    const grid = add(page, element('div', undefined, { class: 'grid narrow' })).lastElementChild;
    const suffix = experiment ? ', ' + experiment : '';
    learningCurve(grid, runs, 'against what was read' + suffix, tokensSeen, 'million bytes');
    learningCurve(grid, runs, 'against time' + suffix, secondsSpent, 'seconds of training');
    positionFigure(grid, runs, experiment, suffix);
    samples(runs);
  });
}

function learningCurve(grid, runs, title, along, unit) {
  figure(grid, 'Bits per byte ' + title, 'Solid: validation, after each epoch; dotted: training, the mean over an epoch.',
    runs.map(run => run.label + ' ends at ' + bits(last(run.epochs).validation_bits_per_byte) + ' after ' + last(along(run)).toFixed(1) + ' ' + unit).join('; '),
    runs.flatMap((run, i) => {
      const line = (key, more) => ({ x: along(run), y: run.epochs.map(e => e[key]), name: run.label, legendgroup: run.label, ...more });
      return [line('validation_bits_per_byte', { mode: 'lines+markers', line: { color: palette[i % palette.length] } }),
        line('train_bits_per_byte', { mode: 'lines', line: { color: palette[i % palette.length], dash: 'dot', width: 1 }, showlegend: false, hoverinfo: 'skip' })];
    }), { xaxis: { title: { text: unit }, rangemode: 'tozero' }, yaxis: { title: { text: 'bits per byte' } } });
}

// Of an experiment the means over its seeds, of other runs their own.
function positionFigure(grid, runs, experiment, suffix) {
  const results = data.comparisons.find(c => c.experiment === experiment && c.kind === 'language');
  const lines = results ? results.models.map(m => ({ name: m.name, ranges: m.by_position }))
    : runs.filter(run => run.test).map(run => ({ name: run.label, ranges: run.test.by_position }));
  if (!lines.length) return;
  const middle = range => Math.sqrt((range.begin + 1) * range.end);
  figure(grid, 'Bits per byte by position in the context' + suffix,
    'Test; how much a prediction costs with so many bytes before it, in ranges that double in length.',
    lines.map(l => l.name + ' from ' + bits(l.ranges[0].bits_per_byte) + ' to ' + bits(last(l.ranges).bits_per_byte)).join('; '),
    lines.map(l => ({ x: l.ranges.map(middle), y: l.ranges.map(r => r.bits_per_byte), name: l.name, mode: 'lines+markers',
      text: l.ranges.map(r => r.end === r.begin + 1 ? 'position ' + r.begin : 'positions ' + r.begin + ' to ' + (r.end - 1)),
      hovertemplate: '%{text}: %{y:.3f}' })),
    { xaxis: { type: 'log', title: { text: 'bytes before, and itself' } }, yaxis: { title: { text: 'bits per byte' } } });
}

// What each model makes of the same lines.
function samples(runs) {
  const written = runs.filter(run => run.sample);
  if (!written.length) return;
  const first = written[0].sample;
  add(page, element('h3', 'Samples', { class: 'apart' }));
  add(page, element('p', 'Each model goes on from the same lines of the test text, here in grey' + (finite(first.temperature)
    ? '; temperature ' + first.temperature + ', seed ' + first.seed : '') + '. Bytes that are no text appear as �.', { class: 'soft' }));
  const grid = add(page, element('div', undefined, { class: 'grid narrow' })).lastElementChild;
  written.forEach(run => {
    const text = add(element('pre', undefined, { class: 'sample' }), element('span', run.sample.prompt, { class: 'prompt' }), run.sample.text);
    add(grid, add(element('div'), element('h3', run.label), text));
  });
}

function barTraces(bars, own, horizontal) {
  const names = bars.map(b => b.name), values = bars.map(b => b.value);
  const errors = { array: bars.map(b => b.error), visible: bars.some(b => b.error > 0) };
  return [{
    type: 'bar', text: values.map(v => v.toFixed(1)), marker: { color: bars.map((_, i) => i < own ? palette[i % palette.length] : '#9aa0a8') },
    ...(horizontal ? { orientation: 'h', x: values, y: names, error_x: errors } : { x: names, y: values, error_y: errors }),
  }];
}

// One figure for each experiment, and one for the other runs of a task.
function accuracyBars(grid) {
  const groups = data.comparisons.filter(c => c.kind !== 'language').map(c => ({
    title: c.experiment, task: c.experiment.split('-')[0],
    bars: c.models.map(m => ({ name: m.name, value: m.mean, error: m.deviation })),
  }));
  const own = classifiers(data.runs).filter(r => r.test && !r.experiment);
  [...new Set(own.map(r => r.config.data.task))].forEach(task => groups.push({
    title: task, task,
    bars: own.filter(r => r.config.data.task === task).map(r => ({ name: r.name, value: 100 * r.test.accuracy, error: 0 })),
  }));
  groups.forEach(group => {
    const others = Object.entries(published.long_range_arena[group.task] || {}).map(([name, value]) => ({ name: name + ' (LRA)', value, error: 0 }));
    const bars = [...group.bars, ...others];
    const horizontal = bars.length > 14;  // so many names do not fit side by side
    figure(grid, 'Test accuracy, ' + group.title, others.length
      ? 'Grey: figures that Long Range Arena published for its own, larger setting of the task. They are context, not a comparison.'
      : 'Scored once, with the checkpoint that was best on validation.',
      bars.map(b => b.name + ' ' + b.value.toFixed(2) + ' %').join('; '),
      barTraces(bars, group.bars.length, horizontal), horizontal
        ? { xaxis: { title: { text: '%' } }, yaxis: { autorange: 'reversed' } } : { yaxis: { title: { text: '%' } } },
      horizontal ? bars.length * 1.5 + 5 : undefined);
  });
}

// κ over its Gaussian value, of one test of normality.
const kurtosisRatio = test => test.kurtosis_ratio ?? test.kurtosis / test.gaussian_kurtosis;

// That against the model's width, if there are runs of at least three widths.
function widthFigures(grid) {
  const runs = data.runs.filter(run => run.config.model.levels > 1 && (run.probes || []).some(p => p.theory));
  const widths = [...new Set(runs.map(run => run.config.model.width))].sort((a, b) => a - b);
  if (widths.length < 3) return;
  [['before training', series => series.y[0]], ['trained', series => last(series.y)]].forEach(([when, pick]) => {
    const levels = Math.max(...runs.map(run => run.config.model.levels));
    const lines = Array.from({ length: levels }, (_, level) => ({
      name: 'level ' + level, x: widths, mode: 'lines+markers', line: { color: palette[level] },
      y: widths.map(width => {
        const series = probed(runs.find(run => run.config.model.width === width), kurtosisRatio).find(s => s.level === level);
        return series ? pick(series) : null;
      }),
    }));
    figure(grid, 'κ against width, ' + when, 'Mardia’s kurtosis of each level’s scores divided by its value for Gaussian scores, mean over blocks and heads; 1 is Gaussian.',
      lines.map(l => l.name + ': ' + l.x.map((w, i) => 'd = ' + w + ' ' + short(l.y[i])).join(', ')).join('; '),
      lines, { xaxis: { title: { text: 'd' }, type: 'log', tickvals: widths, ticktext: widths.map(String) }, yaxis: { title: { text: 'κ / Gaussian κ' } } });
  });
}

function training() {
  const grid = section('Figure 3: training, and how Gaussian the scores are');
  data.runs.filter(run => run.epochs.length).forEach(run => {
    if (!isLanguage(run)) figure(grid, run.name + ': loss and accuracy', 'Solid: training, dashed: validation.',
      'Training loss from ' + short(run.epochs[0].train_loss) + ' to ' + short(last(run.epochs).train_loss),
      [{ x: epochs(run), y: run.epochs.map(e => e.train_loss), name: 'loss', line: { color: palette[0] } },
        { x: epochs(run), y: run.epochs.map(e => e.validation_loss), name: 'validation loss', line: { color: palette[0], dash: 'dash' } },
        { x: epochs(run), y: run.epochs.map(e => 100 * e.train_accuracy), name: 'accuracy, %', yaxis: 'y2', line: { color: palette[1] } },
        { x: epochs(run), y: run.epochs.map(e => 100 * e.validation_accuracy), name: 'validation accuracy, %', yaxis: 'y2', line: { color: palette[1], dash: 'dash' } }],
      { xaxis: { title: { text: 'epoch' } }, yaxis: { title: { text: 'loss' } }, yaxis2: { overlaying: 'y', side: 'right', showgrid: false, title: { text: '%' } } });
    const kurtosis = probed(run, t => t.kurtosis_p), skewness = probed(run, t => t.skewness_p);
    if (kurtosis.length) figure(grid, run.name + ': p-values by epoch', 'Mardia’s tests, mean over blocks and heads. Solid: kurtosis, dotted: skewness. Below 0.05 normality is rejected.',
      kurtosis.map(s => 'level ' + s.level + ' kurtosis ends at ' + short(last(s.y))).join('; '),
      [...kurtosis.map(s => ({ x: s.x, y: s.y, name: 'level ' + s.level + ', kurtosis', line: { color: palette[s.level] } })),
        ...skewness.map(s => ({ x: s.x, y: s.y, name: 'level ' + s.level + ', skewness', line: { color: palette[s.level], dash: 'dot' } }))],
      { xaxis: { title: { text: 'epoch' } }, yaxis: { range: [0, 1] } });
    if (!run.theory) return;
    const heads = run.theory.blocks.flatMap(b => b.heads.map(h => ({ ...h, block: b.block })));
    const test = testsOf(heads[0].levels[0]);
    if (test.first_component) {
      const n = test.first_component.length;
      figure(grid, run.name + ': quantiles of the first component', 'Scores of level 0, block 0, head 0, first principal component against a normal distribution.',
        'Smallest ' + short(test.first_component[0]) + ', largest ' + short(last(test.first_component)),
        [{ x: test.first_component.map((_, i) => normalQuantile((i + 0.5) / n)), y: test.first_component, mode: 'markers', name: 'scores', marker: { size: 4 } },
          { x: [-3, 3], y: [-3, 3], mode: 'lines', name: 'normal', line: { dash: 'dot' } }],
        { xaxis: { title: { text: 'normal quantile' } }, yaxis: { title: { text: 'observed' } } });
    }
    ['kurtosis_p', 'skewness_p'].forEach(name => {
      const rows = heads.map(h => h.levels.map(l => testsOf(l)[name] ?? null));
      figure(grid, run.name + ': final p-values, ' + name.replace('_p', ''), 'By block, head and level; dark is small. Below 0.05 normality is rejected.',
        heads.map((h, i) => 'block ' + h.block + ' head ' + h.head + ': ' + rows[i].map(short).join(', ')).join('; '),
        [{ type: 'heatmap', x: rows[0].map((_, l) => 'level ' + l), y: heads.map(h => 'block ' + h.block + ', head ' + h.head), z: rows,
          zmin: 0, zmax: 1, colorscale: 'Viridis', texttemplate: '%{z:.2f}' }],
        { yaxis: { autorange: 'reversed' } });
    });
  });
  dropIfEmpty(grid);
}

// By bisection on a series of the distribution function, which is accurate enough for a plot.
function normalQuantile(p) {
  let low = -8, high = 8;
  for (let i = 0; i < 60; ++i) {
    const middle = (low + high) / 2;
    if (normalBelow(middle) < p) low = middle; else high = middle;
  }
  return (low + high) / 2;
}
function normalBelow(x) {
  let term = x, sum = x;
  for (let n = 1; n < 120; ++n) { term *= x * x / (2 * n + 1); sum += term; }
  return 0.5 + sum * Math.exp(-x * x / 2) / Math.sqrt(2 * Math.PI);
}

function claims() {
  const examined = data.runs.filter(run => run.theory);
  add(page, element('h2', 'The paper’s claims'));
  if (!examined.length) {
    add(page, element('p', 'No run has been examined yet; use `hkt theory DIR`.'));
    return;
  }
  const known = new Map(examined.flatMap(run => run.theory.claims.map(claim => [claim.claim, claim])));
  [...known.values()].forEach(claim => {
    const card = element('div', undefined, { class: 'claim' });
    add(card, element('h3', claim.title + ' (' + claim.paper + ')'));
    examined.forEach(run => {
      const own = run.theory.claims.find(one => one.claim === claim.claim);
      if (!own) return;  // examined by an earlier version
      const line = element('p');
      const kind = own.verdict === 'holds' ? 'holds' : own.verdict === 'does not hold' ? 'fails' : 'open';
      add(line, element('span', run.name + ': ' + own.verdict + '. ', { class: 'verdict ' + kind }), own.sentence);
      add(card, line);
    });
    add(page, card);
    const grid = element('div', undefined, { class: 'grid' });
    add(page, grid);
    examined.forEach(run => (claimFigures[claim.claim] || (() => {}))(grid, run));
  });
}

const headsOf = run => run.theory.blocks.flatMap(b => b.heads.map(h => ({ ...h, name: 'block ' + b.block + ', head ' + h.head })));

const claimFigures = {
  psd(grid, run) {
    const heads = headsOf(run);
    figure(grid, run.name + ': spectrum of B', 'Sorted eigenvalues, without those that are zero by construction. Those below the zero line are negative.',
      heads.map(h => h.name + ': ' + (100 * h.spectrum[0].negative_energy).toFixed(1) + ' % of the energy negative').join('; '),
      heads.map((h, i) => ({ y: h.spectrum[0].eigenvalues, name: h.name, mode: 'lines', line: { dash: dashes[Math.floor(i / palette.length) % dashes.length] } })),
      { xaxis: { title: { text: 'index' } }, yaxis: { title: { text: 'eigenvalue' } } });
    const points = (run.probes || []).filter(p => p.theory);
    if (points.length > 1) figure(grid, run.name + ': smallest eigenvalue of scores by epoch', 'Symmetrised scores on a validation sequence; divided by the largest eigenvalue in magnitude. One line per head; epoch 0 is before training.',
      'From epoch ' + points[0].epoch + ' to ' + last(points).epoch,
      heads.map((h, i) => ({ x: points.map(p => p.epoch), name: h.name,
        y: points.map(p => p.theory.flatMap(b => b.heads)[i].scores_smallest_eigenvalue_share), mode: 'lines+markers' })),
      { xaxis: { title: { text: 'epoch' } } });
  },
  decomposition(grid, run) {
    const heads = headsOf(run);
    figure(grid, run.name + ': directionality', 'The antisymmetric share of each level’s squared norm. For a random matrix it is one half.',
      heads.map(h => h.name + ': ' + h.levels.map(l => (100 * l.directionality).toFixed(1) + ' %').join(', ')).join('; '),
      heads[0].levels.map((_, l) => ({ type: 'bar', x: heads.map(h => h.name), y: heads.map(h => 100 * h.levels[l].directionality), name: 'level ' + l })),
      { barmode: 'group', yaxis: { title: { text: '%' } } });
  },
  depth(grid, run) {
    if (run.config.model.levels < 2) return;
    const heads = headsOf(run), kept = heads[0].depth.map(d => d.kept);
    const average = name => kept.map((_, i) => { const values = heads.map(h => h.depth[i][name]).filter(finite); return values.length ? mean(values) : null; });
    const lines = [['measured KL', 'kl', 'solid'], ['Gaussian part', 'gaussian', 'dash'], ['half the largest variance on the path', 'tilted', 'dashdot'], ['Hoeffding bound', 'hoeffding', 'dot']]
      .filter(([, key]) => average(key).some(v => v > 0));
    figure(grid, run.name + ': the cost of fewer levels', 'KL divergence from the full model if only the first levels are kept, mean over heads and queries, logarithmic scale. With all levels it is zero.',
      kept.map((k, i) => k + ' kept: ' + short(average('kl')[i])).join('; '),
      lines.map(([name, key, dash]) => ({ x: kept, y: average(key).map(v => v > 0 ? v : null), name, line: { dash }, mode: 'lines+markers' })),
      { xaxis: { title: { text: 'levels kept' }, dtick: 1 }, yaxis: { type: 'log', title: { text: 'nats' } } });
    // Older files have the means of signed parts.
    const sized = 'remainder_size' in heads[0].depth[0], parts = [['Gaussian', 'gaussian'], ['non-Gaussian', sized ? 'non_gaussian_size' : 'non_gaussian'], ['remainder', sized ? 'remainder_size' : 'remainder']];
    figure(grid, run.name + ': the three parts of the KL divergence', 'KL = Gaussian ½κ₂ + non-Gaussian −κ₃/6 + κ₄/24 + remainder' + (sized ? '; means of magnitudes, since signs differ from query to query.' : '.'),
      kept.map((k, i) => k + ' kept: ' + parts.map(([, n]) => short(average(n)[i])).join(', ')).join('; '),
      parts.map(([name, key]) => ({ type: 'bar', x: kept, y: average(key), name })),
      { barmode: sized ? 'group' : 'relative', xaxis: { title: { text: 'levels kept' }, dtick: 1 }, yaxis: { title: { text: 'nats' } } });
  },
};

function provenance() {
  add(page, element('h2', 'Configuration and provenance'));
  data.runs.forEach(run => {
    const details = element('details');
    add(details, element('summary', [run.experiment, run.name, run.folder].filter(Boolean).join(', ')), element('pre', JSON.stringify(run.config, null, 2)));
    add(page, details);
  });
  add(page, element('p', 'Written by hkt ' + data.where.version + ', commit ' + data.where.commit + ', on ' + data.where.date + ', ' + data.where.processor + '.', { class: 'soft' }));
}

// A missing or malformed value in the files of a run affects only one part of the page.
function part(draw) {
  try {
    draw();
  } catch (error) {
    add(page, element('p', 'A part of this page could not be drawn: a file of the runs contains something unexpected (' + error.message + ').', { class: 'soft' }));
  }
}
part(answer);
part(language);
if (data.runs.length) part(architecture);
part(learning);
if (data.runs.length) {
  part(training);
  part(claims);
}
provenance();
// With very many plots, each is drawn when it comes near the viewport, and all before the page is printed.
const lazily = plots.length > 60;
if (lazily) {
  const waiting = new Map(plots);
  const observer = new IntersectionObserver(entries => entries.filter(e => e.isIntersecting).forEach(e => {
    observer.unobserve(e.target);
    const draw = waiting.get(e.target);
    waiting.delete(e.target);
    if (draw) draw();
  }), { rootMargin: '800px' });
  plots.forEach(([place]) => observer.observe(place));
  addEventListener('beforeprint', () => { waiting.forEach(draw => draw()); waiting.clear(); });
} else {
  plots.forEach(([, draw]) => draw());
}
document.documentElement.dataset.ready = 'yes';
