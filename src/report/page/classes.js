// SPDX-License-Identifier: Apache-2.0
// The report: what a classifier gets right and wrong, as `hkt eval` recorded it: classes, confusions, calibration, mistakes.
const mostColumns = 16, mostClasses = 20, mistakesInSight = 3;

function classes() {
  const scored = ownRuns.filter(run => run.score).sort((a, b) => b.score.accuracy - a.score.accuracy);
  scored.forEach((run, i) => {
    const score = run.score;
    if (i === 0) add(page, element('h2', run.name + ' on ' + score.split));
    const place = i === 0 ? page : folded(page, run.name + ' on ' + score.split + ': classes, confusions, calibration, mistakes');
    add(place, element('p', count(score.correct) + ' of ' + count(score.sequences) + ' are right, ' + percent(score.accuracy) + '.' +
      (finite(score.macro_f1) ? ' Mean F1 of the classes: ' + percent(score.macro_f1) + '.' : '') +
      (finite(score.calibration.expected_error) ? ' Probabilities are off by ' + (100 * score.calibration.expected_error).toFixed(1) + ' points on average.' : '')));
    const grid = gridIn(place);
    classTable(grid, score);
    confusions(grid, score);
    calibration(grid, run, score);
    mistakes(grid, score);
  });
  const unscored = ownRuns.filter(run => !run.score && !isLanguage(run));
  if (!unscored.length) return;
  const { folder, config } = unscored[0], split = config.data.task === 'text' && !config.data.test ? ' --split validation' : '';
  add(page, add(element('p', undefined, { class: 'soft' }), element('code', 'hkt eval ' + (folder || 'FOLDER') + split),
    ' adds accuracy by class, confusions, calibration and mistakes' + (ownRuns.length > 1 ? ' of this run' : '') + ' to this page.'));
}

const bar = share => element('span', undefined, { class: 'share', style: '--part: ' + (100 * share).toFixed(1) + '%', 'aria-hidden': 'true' });

function classTable(grid, score) {
  const card = added(grid, add(element('div', undefined, { class: 'card' }), element('h3', 'Accuracy by class')));
  const rows = [...score.labels].sort((a, b) => (a.recall ?? 2) - (b.recall ?? 2));
  const show = (place, some) => table(place, ['class', 'accuracy', 'of', 'precision', 'F1'], some.map(row => [row.label,
    finite(row.recall) ? { node: [bar(row.recall), percent(row.recall)] } : '–',
    count(row.sequences), percent(row.precision), percent(row.f1)]));
  show(card, rows.slice(0, mostClasses));
  if (rows.length > mostClasses) show(folded(card, 'The other ' + (rows.length - mostClasses) + ' classes'), rows.slice(mostClasses));
  add(card, element('p', 'The worst first. Accuracy: the share of a class that is recognised (recall). Precision: the share of right ones among those said to be of the class.', { class: 'soft' }));
}

// Rows are labels; the shade of a cell is its share of the row.
function confusions(grid, score) {
  const card = added(grid, add(element('div', undefined, { class: 'card' }), element('h3', 'Confusions')));
  const names = score.labels.map(row => row.label);
  if (names.length <= mostColumns) {
    table(card, ['label ↓, predicted →', ...names], score.labels.map(row => {
      const own = score.confusion[row.label] || {};
      return [row.label, ...names.map(name => shareCell((own[name] || 0) / Math.max(1, row.sequences), count(own[name] || 0)))];
    }));
    add(card, element('p', 'Rows are labels, columns what was predicted; the shade is the share of the row.', { class: 'soft' }));
    return;
  }
  const pairs = Object.entries(score.confusion).flatMap(([label, own]) =>
    Object.entries(own).filter(([predicted]) => predicted !== label).map(([predicted, times]) => [label, predicted, times]))
    .sort((a, b) => b[2] - a[2]).slice(0, 20);
  table(card, ['label', { text: 'taken for', class: 'left' }, 'times'],
    pairs.map(([label, predicted, times]) => [label, { text: predicted, class: 'left label' }, count(times)]));
  add(card, element('p', 'The most frequent of all pairs.', { class: 'soft' }));
}

function calibration(grid, run, score) {
  const bins = score.calibration.bins.filter(bin => bin.sequences > 0);
  if (!bins.length) return;
  const most = Math.max(...bins.map(bin => bin.sequences));
  figure(grid, {
    title: 'Calibration, ' + run.name,
    caption: 'How often predictions of a certain probability are right; the larger the dot, the more of them. Below the dotted line the model is too sure of itself, above it too modest.',
    description: bins.map(bin => 'of ' + bin.sequences + ' at ' + (100 * bin.confidence).toFixed(0) + ' %, ' + (100 * bin.accuracy).toFixed(0) +
      ' % are right').join('; '),
    traces: () => [
      { mode: 'lines', x: [0, 100], y: [0, 100], line: { color: color('--soft'), dash: 'dot', width: 1.5 }, hoverinfo: 'skip' },
      { mode: 'lines+markers', x: bins.map(bin => 100 * bin.confidence), y: bins.map(bin => 100 * bin.accuracy),
        text: bins.map(bin => count(bin.sequences) + ' predictions'),
        line: { color: color('--c0'), width: 1 }, marker: { color: color('--c0'), size: bins.map(bin => 6 + 16 * Math.sqrt(bin.sequences / most)) },
          hovertemplate: '%{text}: %{x:.1f} % sure, %{y:.1f} % right<extra></extra>' }],
    layout: () => ({ xaxis: { title: { text: 'probability, %' }, range: [Math.min(50, 100 * bins[0].confidence) - 5, 104] },
      yaxis: { title: { text: 'right, %' }, range: [-4, 106] } }),
  });
}

function mistakes(grid, score) {
  if (!score.mistakes.length) return;
  const card = added(grid, add(element('div', undefined, { class: 'card' }), element('h3', 'The worst mistakes')));
  add(card, element('p', count(score.mistakes.length) + ' of ' + count(score.sequences - score.correct) +
    ': those whose label was given the least probability.', { class: 'soft' }));
  const show = (place, mistake) => {
    const text = mistake.text.length > 500 ? mistake.text.slice(0, 500) + ' …' : mistake.text;
    const said = element('p', 'Example ' + count(mistake.example) + ': ');
    add(said, element('strong', mistake.label), ' (' + percent(mistake.probability) + '), taken for ', element('strong', mistake.predicted),
      ' (' + percent(mistake.predicted_probability) + ')');
    add(place, said, ...(text ? [element('pre', text, { class: 'text' })] : []));
  };
  score.mistakes.slice(0, mistakesInSight).forEach(mistake => show(card, mistake));
  const rest = score.mistakes.slice(mistakesInSight);
  if (rest.length) {
    const more = folded(card, rest.length + ' more');
    rest.forEach(mistake => show(more, mistake));
  }
}
