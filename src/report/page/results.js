// SPDX-License-Identifier: Apache-2.0
// The report: the answer, the tables of experiments and of runs, and the figures of accuracy.
const bits = x => finite(x) ? x.toFixed(3) : '–';
const duration = seconds => seconds < 120 ? seconds.toFixed(0) + ' s' : (seconds / 60).toFixed(1) + ' min';
const amount = n => n < 1e6 ? (n / 1e3).toFixed(0) + ' kB' : n < 1e9 ? (n / 1e6).toFixed(n < 1e7 ? 2 : 1) + ' MB' : (n / 1e9).toFixed(2) + ' GB';
const probability = p => p < 1e-3 ? minus(p.toExponential(1)) : p.toFixed(3);
const count = n => finite(n) ? n.toLocaleString('en') : '–';
const interval = (pair, digits) => pair ? '[' + pair.map(x => signed(x, digits)).join(', ') + ']' : '';

// Of one run or one experiment its name.
function title() {
  const named = [...ownRuns.map(run => run.name), ...data.comparisons.map(titleOf)];
  return named.length === 1 ? named[0] : data.title;
}

function answer() {
  add(page, element('h1', title()));
  const answers = (data.answers || []).map(readable);
  if (answers.length <= 3) answers.forEach(text => add(page, element('p', text, { class: answers.length < 3 ? 'answer' : '' })));
  if (data.comparisons.length > 1) overview();
  if (answers.length > 3) add(folded(page, 'The same in sentences'), add(element('ul'), ...answers.map(text => element('li', text))));
}

// ---- experiments

// How a model compares with another: {difference, interval, digits, better}, better: more accuracy, or fewer bits.
function contrastOf(comparison, found) {
  const language = isLanguageTable(comparison);
  const difference = language ? found.difference : found.gain;
  const sure = found.interval && (found.interval[0] > 0 || found.interval[1] < 0);
  return { difference, interval: found.interval, digits: language ? 3 : 2, better: sure ? (difference < 0) === language : null };
}
function verdictCell({ better, interval: pair }) {
  if (!pair) return { text: 'one seed', class: 'left open' };
  return better === null ? { text: 'not decided', class: 'left open' } : better ? { text: 'better', class: 'left holds' } : { text: 'worse', class: 'left fails' };
}

// One line or two for each experiment: HKT against standard attention, the plain ones first, the strongest last.
function overview() {
  const rows = data.comparisons.flatMap(comparison => {
    const pairs = comparison.comparisons.map(found => [found, modelIn(comparison, found.model), modelIn(comparison, found.with)])
      .filter(([, own, base]) => own && base && isHierarchical(own) && !isHierarchical(base));
    return [...new Set([pairs[0], last(pairs)])].filter(Boolean).map(([found, own, base], i) => {
      const other = own === pairs[0][1] ? 'vs. ' + nameOf(base, comparison) : nameOf(own, comparison).replace(/^HKT, /, '');
      const language = isLanguageTable(comparison), contrast = contrastOf(comparison, found);
      const score = model => language ? bits(model.mean) : model.mean.toFixed(2) + ' %';
      return [comparison.short + (i ? ': ' + other : ''), score(own), score(base), signed(contrast.difference, contrast.digits),
        verdictCell(contrast), interval(contrast.interval, contrast.digits) || '–',
        { text: nameOf(own, comparison) + ' vs. ' + nameOf(base, comparison), class: 'left wide' }];
    });
  });
  if (!rows.length) return;
  add(page, element('h2', 'HKT against standard attention'));
  table(page, ['experiment', 'HKT', 'standard', 'difference', { text: 'HKT is', class: 'left' }, '95 %', { text: 'which models', class: 'left' }], rows);
  add(page, element('p', 'Test accuracy, or bits per byte of language models, of which fewer are better. Brackets: 95 % intervals of the difference over seeds; where one contains zero, nothing is decided.', { class: 'soft' }));
}

function experiments() {
  const many = data.comparisons.length > 3;
  if (data.comparisons.length) add(page, element('h2', many ? 'The experiments' : 'Results'));
  data.comparisons.forEach(comparison => {
    const place = many ? folded(page, titleOf(comparison)) : page;
    if (!many && data.comparisons.length + ownRuns.length > 1) add(place, element('h3', titleOf(comparison)));
    const grid = gridIn(place);
    if (isLanguageTable(comparison)) {
      positionFigure(grid, comparison.short, comparison.models.map(model => ({ name: nameOf(model, comparison), ranges: model.by_position })),
        colorIndexOf(comparison.models, isHierarchical));
    } else if (comparison.models.length > few && comparison.comparisons.length) {
      ablationFigure(grid, comparison);
    } else {
      accuracyFigure(grid, comparison);
    }
    curveFigure(grid, comparison);
    if (isLanguageTable(comparison)) languageTable(place, comparison);
    else classifierTable(comparison.models.length > few ? folded(place, 'All ' + comparison.models.length + ' models') : place, comparison);
  });
}

const withDeviation = (model, comparison, digits, unit) => model.mean.toFixed(digits) +
  (comparison.seeds.length > 1 ? ' ± ' + model.deviation.toFixed(digits) : '') + unit;

function tests(place, comparison, texts) {
  if (!texts.length) return;
  const inside = texts.length > 3 ? folded(place, 'All comparisons and tests') : place;
  add(inside, add(element('ul', undefined, { class: 'soft' }), ...texts.map(text => element('li', text))));
}

function classifierTable(place, comparison) {
  const first = comparison.models[0];
  const rates = new Set(comparison.models.map(model => model.learning_rate)).size > 1;
  table(place, ['model', 'test accuracy', 'vs. ' + nameOf(first, comparison), ...(rates ? ['learning rate'] : []), 'parameters', 'step', 'ratio',
    { text: 'what it is', class: 'left' }],
    comparison.models.map(model => [nameOf(model, comparison), withDeviation(model, comparison, 2, ' %'), model === first ? '' : signed(model.mean - first.mean, 2),
      ...(rates ? [model.learning_rate ?? '–'] : []), count(model.parameters), finite(model.step_seconds) ? (1e3 * model.step_seconds).toFixed(1) + ' ms' : '–',
      finite(model.step_ratio) ? model.step_ratio.toFixed(2) + '×' : '–', { text: model.what, class: 'left wide' }]));
  tests(place, comparison, comparison.comparisons.map(found => {
    const name = key => nameOf(modelIn(comparison, found[key]) || { name: found[key], what: found[key] }, comparison);
    return name('model') + ' against ' + name('with') + ': ' + signed(found.gain, 2) + (found.interval ? ' ' + interval(found.interval, 2) + ' paired by seed' : '') +
      (found.sequences_interval ? ', ' + interval(found.sequences_interval, 2) + ' over sequences' : '') + (found.verdict ? ', ' + found.verdict : '') +
      (finite(found.paired_t_test_p) ? ', paired t-test p = ' + probability(found.paired_t_test_p) : '') + ', McNemar p by seed ' +
        found.mcnemar_p.map(probability).join(', ');
  }));
}

function languageTable(place, comparison) {
  const first = comparison.models[0], several = comparison.seeds.length > 1;
  table(place, ['model', 'bits per byte', 'vs. ' + nameOf(first, comparison), 'step', 'training', 'bytes read', 'parameters', { text: 'what it is', class: 'left' }],
    comparison.models.map(model => [nameOf(model, comparison), withDeviation(model, comparison, 3, ''), model === first ? '' : signed(model.mean - first.mean, 3),
      finite(model.step_ratio) ? model.step_ratio.toFixed(2) + '×' : '–', duration(model.training_seconds), amount(model.tokens),
        count(model.parameters), { text: model.what, class: 'left wide' }]));
  tests(place, comparison, comparison.comparisons.map(found => {
    const name = key => nameOf(modelIn(comparison, found[key]) || { name: found[key], what: found[key] }, comparison);
    return name('model') + ' against ' + name('with') + ': ' + signed(found.difference, 3) + ' bits per byte' +
      (found.interval ? ' ' + interval(found.interval, 3) + ' paired by seed' : '') +
      (found.welch_interval ? ', ' + interval(found.welch_interval, 3) + ' by Welch' : '') + ', ' + found.verdict;
  }));
  add(place, element('p', 'Bits per byte are those of the test text; fewer are better. The step is its time, over that of ' + nameOf(first, comparison) + '. ' + (several
    ? 'Brackets: 95 % intervals of the difference; where one contains zero, nothing is decided.'
    : 'With one seed there is no interval: nothing says whether another seed would give the same order.'), { class: 'soft' }));
  const run = data.runs.find(one => one.home === comparison);
  if (run) add(place, element('p', textOf(run), { class: 'soft' }));
}

// What a language model has read, and how.
const textOf = run => 'Text: ' + (run.config.data.train || run.config.data.task) +
  (run.config.data.pattern && run.config.data.pattern !== '*' ? ', files ' + run.config.data.pattern : '') + '. Contexts of ' + count(run.config.model.max_length) +
  ' bytes, ' + run.config.train.batch + ' a step. On test every byte is scored once, with at least half a context before it.';

// ---- figures of accuracy

// A line for each model; then the paper's two, and what Long Range Arena published.
function accuracyRows(comparison) {
  const shades = colorIndexOf(comparison.models, isHierarchical);
  const rows = comparison.models.map((model, i) => ({ name: nameOf(model, comparison), value: model.mean, seeds: valuesOf(model), color: '--c' + shades[i] }));
  const paper = published.paper[comparison.experiment];
  if (paper) rows.push(...[['Standard', 'standard', 1], ['HKT', 'hkt', 0]].map(([name, key, shade]) =>
    ({ name: name + ' (the paper)', value: paper[key][0], deviation: paper[key][1], seeds: [], color: '--c' + shade, paper: true })));
  return rows;
}

function accuracyFigure(grid, comparison) {
  const rows = accuracyRows(comparison);
  const task = comparison.experiment.split('-')[0];
  const others = Object.entries(published.long_range_arena[task] || {});
  const chance = comparison.classes > 1 ? 100 / comparison.classes : null;
  const arena = others.length ? 'Long Range Arena' : null;
  const names = [...rows.map(row => row.name), ...(arena ? [arena] : [])];
  const hasPaper = rows.some(row => row.paper), several = comparison.seeds.length > 1;
  figure(grid, {
    title: 'Test accuracy, ' + comparison.short,
    caption: (several ? 'Bars: means over seeds; dots: the seeds. ' : 'One seed. ') +
      (hasPaper ? 'Pale: what the paper reports, with its deviation; it does not describe its models and data, so gains can be compared, accuracies hardly. ' : '') +
      (arena ? 'Grey: ' + others.map(([name, value]) => name + ' ' + value).join(', ') + ', in the larger setting of that benchmark. ' : '') +
      (chance ? 'Dashed: chance, 1 in ' + comparison.classes + '.' : ''),
    description: rows.map(row => row.name + ' ' + row.value.toFixed(2) + ' %').join('; ') + (chance ? '; chance ' + chance.toFixed(0) + ' %' : ''),
    height: heightFor(names.map(name => wrapped(name)), 2.1),
    traces: () => [
      { type: 'bar', orientation: 'h', y: rows.map(row => wrapped(row.name)), x: rows.map(row => row.value), hovertemplate: '%{x:.2f} %<extra></extra>',
        text: rows.map(row => row.value.toFixed(1)), textposition: 'inside', insidetextanchor: 'start', textangle: 0,
        textfont: { color: rows.map(row => row.paper ? color('--ink') : color('--card')) },
        marker: { color: rows.map(row => row.paper ? faded(row.color, 0.28) : color(row.color)) },
        error_x: { array: rows.map(row => row.deviation || 0), visible: hasPaper, color: color('--soft'), thickness: 1 } },
      { mode: 'markers', x: rows.flatMap(row => several ? row.seeds : []), y: rows.flatMap(row => several ? row.seeds.map(() => wrapped(row.name)) : []),
        marker: { color: color('--card'), size: 7, line: { color: color('--ink'), width: 1.5 } }, hovertemplate: '%{x:.2f} %<extra></extra>' },
      ...(arena ? [{ mode: 'markers', x: others.map(([, value]) => value), y: others.map(() => wrapped(arena)), text: others.map(([name]) => name),
        marker: { color: color('--soft'), size: 8 }, hovertemplate: '%{text}: %{x:.2f} %<extra></extra>' }] : []),
    ].filter(trace => trace.x.length),
    layout: () => ({ xaxis: { title: { text: '%' }, rangemode: 'tozero' }, bargap: 0.3,
      yaxis: { autorange: 'reversed', type: 'category', categoryorder: 'array', categoryarray: names.map(name => wrapped(name)) },
      shapes: chance ? [{ type: 'line', x0: chance, x1: chance, y0: 0, y1: 1, yref: 'paper', line: { color: color('--soft'), dash: 'dash', width: 1.5 } }] : [] }),
  });
}

// Of one seed, what the sampling of the test set alone would do to a difference of two independent accuracies.
function samplingInterval(comparison, own, base, gain) {
  if (!finite(comparison.test_sequences)) return null;
  const variance = model => model.mean / 100 * (1 - model.mean / 100) / comparison.test_sequences;
  const half = 196 * Math.sqrt(variance(own) + variance(base));
  return [gain - half, gain + half];
}

const labelWidth = () => isNarrow() ? 20 : 48;

// What each change does, as dots with intervals, sorted by effect.
function ablationFigure(grid, comparison) {
  const several = comparison.seeds.length > 1, first = comparison.comparisons[0].with;
  const rows = comparison.comparisons.map(found => {
    const own = modelIn(comparison, found.model), base = modelIn(comparison, found.with);
    if (!own || !base) return null;
    const pair = found.interval || samplingInterval(comparison, own, base, found.gain);
    return { name: nameOf(own, comparison), gain: found.gain, pair, seeds: several ? own.test_accuracy.map((value, i) => value - base.test_accuracy[i]) : [],
      sure: pair && (pair[0] > 0 || pair[1] < 0) };
  }).filter(Boolean).sort((a, b) => a.gain - b.gain);
  const reach = rows.flatMap(row => [row.gain, ...row.seeds, 0]), low = Math.min(...reach), high = Math.max(...reach), margin = 0.12 * (high - low);
  const range = [low - margin, high + margin];
  const clipped = x => Math.min(range[1], Math.max(range[0], x));
  figure(grid, {
    title: 'What each change does, ' + comparison.short,
    caption: 'Points of test accuracy to ' + nameOf(modelIn(comparison, first) || { name: first, what: first }, comparison) +
      '; of standard attention with a change, to HKT with the same change. ' + (several
      ? 'Dots: means; rings: the seeds; lines: 95 % intervals over seeds, which are long for so few, and cut where they leave the picture. '
      : 'One seed. Lines: what the sampling of the test set alone allows (95 %, as if unpaired); the spread over seeds is not in them. ') +
        'Filled: the interval does not contain zero.',
    description: rows.map(row => row.name + ' ' + signed(row.gain, 2)).join('; '),
    height: heightFor(rows.map(row => wrapped(row.name, labelWidth()))),
    traces: () => [
      { mode: 'lines', x: rows.flatMap(row => row.pair ? [...row.pair.map(clipped), null] : []),
        y: rows.flatMap((row, i) => row.pair ? [i, i, null] : []), line: { color: color('--soft'), width: 1.5 }, hoverinfo: 'skip' },
      { mode: 'markers', x: rows.flatMap(row => row.seeds), y: rows.flatMap((row, i) => row.seeds.map(() => i)),
        marker: { symbol: 'circle-open', color: color('--c0'), size: 6 }, hoverinfo: 'skip' },
      { mode: 'markers', x: rows.map(row => row.gain), y: rows.map((_, i) => i),
        text: rows.map(row => row.name + ': ' + signed(row.gain, 2) + ' ' + interval(row.pair, 2)), hovertemplate: '%{text}<extra></extra>',
        marker: { size: 10, color: rows.map(row => row.sure ? color('--c0') : color('--card')), line: { color: color('--c0'), width: 2 } } },
    ].filter(trace => trace.x.length),
    layout: () => ({ xaxis: { title: { text: 'points' }, range, zeroline: true, zerolinecolor: color('--ink') },
      yaxis: { tickvals: rows.map((_, i) => i), ticktext: rows.map(row => wrapped(row.name, labelWidth())), range: [-0.7, rows.length - 0.3], showgrid: false } }),
  });
}

// ---- runs that belong to no experiment

function runsTable() {
  if (!ownRuns.length) return;
  const differing = ownRuns.length > 1 ? differences(ownRuns) : [];
  const separate = differing.length <= 5 ? differing : [];
  const scored = run => {
    if (run.test) return isLanguage(run) ? bits(run.test.bits_per_byte) : percent(run.test.accuracy);
    return '–';
  };
  const validated = run => !finite(run.best_validation) ? '–' : isLanguage(run) ? bits(run.best_validation) : percent(run.best_validation);
  const tested = ownRuns.some(run => run.test);
  const language = ownRuns.every(isLanguage), mixed = !language && ownRuns.some(isLanguage);
  add(page, element('h2', ownRuns.length > 1 ? 'The runs' : 'The run'));
  table(page, ['run', 'validation', ...(tested ? ['test'] : []), ...separate.map(({ key }) => keyText(key)), 'epochs', 's/epoch', 'parameters',
    { text: 'model', class: 'left' }], ownRuns.map((run, i) => [
    run.name, validated(run), ...(tested ? [scored(run)] : []), ...separate.map(({ values }) => settingText(values[i])), run.epochs.length || '–',
    run.epochs.length ? mean(run.epochs.map(epoch => epoch.seconds)).toFixed(1) : '–', count(run.parameters), { text: run.summary, class: 'left wide' }]));
  const measure = language ? 'Bits per byte; fewer are better.' : mixed ? 'Accuracy of classifiers; bits per byte of language models, of which fewer are better.' : 'Accuracy.';
  const same = ownRuns.length > 1 && !differing.length ? ' The settings of these runs are the same.' : '';
  if (tested || ownRuns.some(run => finite(run.best_validation))) add(page, element('p', measure + ' Validation: the best epoch.' + same, { class: 'soft' }));
  if (differing.length > separate.length) {
    const place = folded(page, differing.length + ' settings differ between the runs');
    table(place, ['setting', ...ownRuns.map(run => run.name)], differing.map(({ key, values }) => [key, ...values.map(settingText)]));
  }
  const told = new Set(ownRuns.filter(isLanguage).map(textOf));
  told.forEach(text => add(page, element('p', text, { class: 'soft' })));
}
