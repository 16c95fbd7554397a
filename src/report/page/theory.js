// SPDX-License-Identifier: Apache-2.0
// The report: one table of verdicts, claims by models; the levels' λ and effective shares; how Gaussian the scores are. What
// carries each verdict is folded away beneath it.
// The claims are about HKT, so that its models come first.
const examined = data.runs.filter(run => run.theory && Array.isArray(run.theory.claims) && run.theory.claims.length)
  .sort((a, b) => Number(b.config.model.levels > 1) - Number(a.config.model.levels > 1));

const headsOf = run => run.theory.blocks.flatMap(block => block.heads.map(head =>
  ({ ...head, name: 'block ' + block.block + ', head ' + head.head, short: block.block + ', ' + head.head })));
// Older files call the tests of normality gaussianity.
const testOf = level => level.normality || level.gaussianity || {};
const shortTitles = { psd: 'B is positive semidefinite', 'psd-implication': 'B ⪰ 0 makes scores ⪰ 0', decomposition: 'Two parts, kept apart',
  independence: 'Parts are independent', subsumption: 'Contains standard attention',
  strictness: 'Is more than it', depth: 'Cost of dropped levels', decay: 'Levels decay', gaussianity: 'Scores are Gaussian', cost: 'Cost at most 4/3',
    phase: 'Shifts change nothing', length: 'Longer inputs' };
const marks = { holds: '✓', proved: '✓', 'does not hold': '✗' };
const kindOf = verdict => verdict === 'holds' || verdict === 'proved' ? 'holds' : verdict === 'does not hold' ? 'fails' : 'open';
const verdictText = verdict => (marks[verdict] ? marks[verdict] + ' ' : '') + verdict;

function claims() {
  if (!data.runs.some(run => run.config.model.levels > 0)) return;
  add(page, element('h2', 'The paper’s claims'));
  if (!examined.length) {
    const runs = data.runs.filter(run => run.folder);
    add(page, add(element('p', 'No model here has been examined yet; ', { class: 'soft' }),
      element('code', 'hkt theory ' + (runs.length ? runs[0].folder : 'FOLDER')), ' does that.'));
    return;
  }
  const known = [...new Map(examined.flatMap(run => run.theory.claims.map(claim => [claim.claim, claim]))).values()];
  const own = (run, claim) => run.theory.claims.find(one => one.claim === claim.claim);
  const cell = (run, claim) => {
    const found = own(run, claim);
    return found ? { text: verdictText(found.verdict), class: 'left verdict ' + kindOf(found.verdict) } : { text: '–', class: 'left' };
  };
  const title = claim => shortTitles[claim.claim] || claim.title;
  const paper = examined.length > 3 ? [] : [{ text: 'paper', class: 'left' }];  // the reasons have it, too
  // The longer side is the one that goes down.
  if (examined.length > known.length) table(page, ['model', ...known.map(claim => ({ text: title(claim), class: 'left' }))],
    examined.map(run => [run.label, ...known.map(claim => cell(run, claim))]));
  else table(page, ['claim', ...examined.map(run => ({ text: run.label, class: 'left' })), ...paper],
    known.map(claim => [title(claim), ...examined.map(run => cell(run, claim)), ...(paper.length ? [{ text: claim.paper, class: 'left' }] : [])]));
  add(page, element('p', 'Proved: a theorem, whose arithmetic this model confirms. Not decided: the claim does not apply to the model, or nothing speaks for or against it. ', { class: 'soft' }));
  const place = folded(page, 'The reasons, and what was measured, claim by claim');
  known.forEach(claim => {
    add(place, element('h3', title(claim) + ' (' + claim.paper + ')'));
    add(place, element('p', claim.title + '.' + (claim.rule ? ' Rule: ' + claim.rule + '.' : ''), { class: 'soft' }));
    reasons(place, examined.map(run => [run, own(run, claim)]).filter(([, found]) => found));
    const grid = gridIn(place);
    part(() => (claimFigures[claim.claim] || (() => {}))(grid), grid);
  });
}

// Models of which the same is said are named together.
function reasons(place, found) {
  const texts = new Map();
  found.forEach(([run, { verdict, sentence }]) => {
    const key = JSON.stringify([verdict, sentence]);
    texts.set(key, [...(texts.get(key) || []), run.label]);
  });
  texts.forEach((labels, key) => {
    const [verdict, sentence] = JSON.parse(key);
    add(place, add(element('p'), element('span', labels.join('; ') + ': ' + verdict + '. ', { class: 'verdict ' + kindOf(verdict) }), readable(sentence)));
  });
}

// A line for each run and a dot for each head.
function headDots(grid, { title, caption, groups, unit, range }) {
  const shown = groups.filter(group => group.points.length);
  const names = [...new Set(shown.flatMap(group => group.points.map(point => point.run)))];
  if (!names.length) return;
  figure(grid, {
    title, caption,
    description: shown.map(group => (group.name ? group.name + ': ' : '') + names.map(name => {
      const values = group.points.filter(point => point.run === name).map(point => point.value);
      return values.length ? name + ' ' + Math.min(...values).toFixed(1) + ' to ' + Math.max(...values).toFixed(1) : '';
    }).filter(Boolean).join(', ')).join('; '),
    height: heightFor(names.map(name => wrapped(name)), 2.2),
    traces: () => shown.map((group, i) => ({ mode: 'markers', name: group.name, x: group.points.map(point => point.value),
      text: group.points.map(point => point.run + ', ' + point.head),
      y: group.points.map(point => names.indexOf(point.run) + (shown.length > 1 ? 0.5 * (i / (shown.length - 1) - 0.5) : 0)),
        marker: { color: seriesColor(i), size: 8, opacity: 0.8 }, hovertemplate: '%{text}: %{x:.1f}<extra></extra>' })),
    layout: () => ({ xaxis: { title: { text: unit }, range }, yaxis: { tickvals: names.map((_, i) => i), ticktext: names.map(name => wrapped(name)),
      range: [names.length - 0.4, -0.6], showgrid: false } }),
  });
}

const claimFigures = {
  psd(grid) {
    headDots(grid, { title: 'How much of B is negative', caption: 'The negative share of the energy of B’s spectrum, a dot for each head; 0 is positive semidefinite; of a random matrix it is about one half.', unit: '%', range: [-3, 103],
      groups: [{ points: examined.flatMap(run => headsOf(run).filter(head => head.spectrum[0]).map(head =>
        ({ run: run.label, head: head.name, value: 100 * head.spectrum[0].negative_energy }))) }] });
    if (examined.length > 4) return;
    examined.filter(run => headsOf(run)[0].spectrum[0] && headsOf(run)[0].spectrum[0].eigenvalues).forEach(run => figure(grid, {
      title: 'Spectrum of B, ' + run.label, caption: 'Eigenvalues in order, without those that are zero by construction; a line for each head.',
      description: headsOf(run).map(head => head.name + ': ' + (100 * head.spectrum[0].negative_energy).toFixed(1) + ' % of the energy negative').join('; '),
      traces: () => headsOf(run).map((head, i) => lineOf({ name: head.name, x: head.spectrum[0].eigenvalues.map((_, at) => at),
        y: head.spectrum[0].eigenvalues, shade: seriesColor(i), dash: dashOf(i) })),
      layout: () => ({ xaxis: { title: { text: 'index' } }, yaxis: { title: { text: 'eigenvalue' } } }),
    }));
  },
  decomposition(grid) {
    const levels = Math.max(...examined.map(run => run.config.model.levels));
    headDots(grid, { title: 'How directional the scores are', caption: 'The antisymmetric share of each level’s squared norm, a dot for each head. Of a random matrix it is one half.', unit: '%', range: [-3, 103],
      groups: Array.from({ length: levels }, (_, level) => ({ name: 'level ' + level,
        points: examined.flatMap(run => headsOf(run).filter(head => head.levels[level] && finite(head.levels[level].directionality))
        .map(head => ({ run: run.label, head: head.name, value: 100 * head.levels[level].directionality }))) })) });
  },
  depth(grid) {
    const runs = examined.filter(run => run.config.model.levels > 1 && headsOf(run)[0].depth);
    const meanOf = values => values.length ? mean(values) : null;
    const average = (run, name) => headsOf(run)[0].depth.map((_, i) => meanOf(headsOf(run).map(head => head.depth[i][name]).filter(finite)));
    if (!runs.length) return;
    const kept = run => headsOf(run)[0].depth.map(at => at.kept), positive = list => list.map(value => value > 0 ? value : null);
    const axes = values => ({ xaxis: { title: { text: 'levels kept' }, dtick: 1 }, yaxis: { ...logarithmic(values), title: { text: 'nats' } } });
    figure(grid, { title: 'The cost of fewer levels', caption: 'KL divergence from the full model if only the first levels are kept, mean over heads and queries, logarithmic scale. With all levels it is zero.',
      description: runs.map(run => run.label + ': ' + kept(run).map((k, i) => k + ' kept ' + short(average(run, 'kl')[i])).join(', ')).join('; '),
      traces: () => runs.map((run, i) => lineOf({ name: run.label, x: kept(run), y: positive(average(run, 'kl')), mode: 'lines+markers',
        shade: seriesColor(i), dash: dashOf(i) })), layout: () => axes(runs.flatMap(run => average(run, 'kl'))) });
    if (runs.length > 4) return;
    runs.forEach(run => {
      const lines = [['measured', 'kl'], ['Gaussian part', 'gaussian'], ['non-Gaussian, size', 'non_gaussian_size'],
        ['remainder, size', 'remainder_size'], ['half the largest variance on the path', 'tilted'], ['Hoeffding’s bound', 'hoeffding']]
        .filter(([, key]) => average(run, key).some(value => value > 0));
      figure(grid, { title: 'Parts and bounds, ' + run.label, caption: 'KL = Gaussian ½κ₂ + non-Gaussian −κ₃/6 + κ₄/24 + remainder; of the last two the means of magnitudes. Dotted: bounds.',
        description: lines.map(([name, key]) => name + ' ' + average(run, key).map(short).join(', ')).join('; '),
        traces: () => lines.map(([name, key], i) => lineOf({ name, x: kept(run), y: positive(average(run, key)), mode: 'lines+markers',
          shade: seriesColor(i), dash: i > 3 ? 'dot' : 'solid' })), layout: () => axes(lines.flatMap(([, key]) => average(run, key))) });
    });
  },
  gaussianity(grid) {
    const run = examined.find(one => one.config.model.levels > 1) || examined[0], sample = (headsOf(run)[0].levels.map(testOf)[0] || {}).first_component;
    if (sample) figure(grid, { title: 'Quantiles, ' + run.label, caption: 'Scores of level 0, block 0, head 0: their first principal component against a normal distribution.', description: 'Smallest ' + short(sample[0]) + ', largest ' + short(last(sample)),
      traces: () => [{ x: [-3, 3], y: [-3, 3], mode: 'lines', name: 'normal', line: { dash: 'dot', color: color('--soft') } },
        { x: sample.map((_, i) => normalQuantile((i + 0.5) / sample.length)), y: sample, mode: 'markers', name: 'scores', marker: { size: 5, color: color('--c0') } }],
      layout: () => ({ xaxis: { title: { text: 'normal quantile' } }, yaxis: { title: { text: 'observed' } } }) });
    examined.forEach(one => normalityTable(grid.parentElement, one));
  },
};

// κ over its Gaussian value, and log₁₀ p: p-values themselves would be a wall of zeros.
function normalityTable(parent, run) {
  const place = folded(parent, 'Tests of ' + run.label + ', by head and level'), heads = headsOf(run);
  const levels = heads[0].levels.map((_, level) => level), logarithm = p => !finite(p) ? '–' : p > 0 ? minus(Math.log10(p).toFixed(1)) : '< −300';
  const group = (name, pick) => [levels.map(level => name + ' ' + level), head => head.levels.map(level => pick(testOf(level)))];
  const groups = [group('κ ratio, level', test => finite(test.kurtosis_ratio) ? shareCell(test.kurtosis_ratio - 1, test.kurtosis_ratio.toFixed(2)) : '–'),
    group('log p of kurtosis, level', test => logarithm(test.kurtosis_p)), group('log p of skewness, level', test => logarithm(test.skewness_p))];
  table(place, ['head', ...groups.flatMap(([names]) => names)], heads.map(head => [head.name, ...groups.flatMap(([, cells]) => cells(head))]));
  add(place, element('p', 'κ ratio: Mardia’s kurtosis over its value for Gaussian scores, shaded by its distance from 1. p: logarithm to the base 10; below −1.3 normality is rejected at 5 %.', { class: 'soft' }));
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

// ---- levels: λ, and what a level contributes to the choice among keys

function levelRows(run) {
  const heads = run.theory && run.theory.blocks ? headsOf(run) : [];
  if (heads.length) return heads.map(head => ({ name: head.short, weights: head.levels.map(level => level.weight), shares: head.levels.map(level => level.share) }));
  const trained = run.epochs.length ? last(run.epochs).level_weights || [] : [];
  return trained.flatMap((block, b) => block.map((weights, h) => ({ name: b + ', ' + h, weights, shares: weights.map(() => undefined) })));
}

function levels() {
  const hasShares = run => Number(levelRows(run).some(row => row.shares.some(finite)));
  const runs = data.runs.filter(run => run.config.model.levels > 1 && levelRows(run).length).sort((a, b) => hasShares(b) - hasShares(a));
  if (!runs.length) return;
  add(page, element('h2', 'What the levels do'));
  add(page, element('p', 'λ is a level’s weight, learned for each head; before training it is the same for all. But filters can take over what λ gives, so the effective share is what counts: how much of what distinguishes the keys for a query comes from the level. Shares sum to 1; a negative one works against the others. Shades: from 0 to 1, both alike.'));
  levelTable(page, runs[0]);
  if (runs.length === 1) return;
  const others = folded(page, 'Levels of ' + (runs.length > 2 ? 'the ' + (runs.length - 1) + ' other models' : runs[1].label));
  runs.slice(1).forEach(run => levelTable(others, run));
}

function levelTable(place, run) {
  const rows = levelRows(run), numbers = rows[0].weights.map((_, level) => level);
  add(place, element('h3', run.label));
  const middle = pick => numbers.map(level => { const values = rows.map(row => pick(row)[level]).filter(finite); return values.length ? mean(values) : undefined; });
  // Files without shares of each head have means over heads, if any.
  const probe = last((run.probes || []).filter(one => (one.shares || []).some(finite)));
  const shares = middle(row => row.shares);
  const all = { name: 'mean', weights: middle(row => row.weights), shares: shares.some(finite) || !probe ? shares : probe.shares };
  const cells = list => list.map(value => shareCell(value, finite(value) ? fixed(value, 2) : '–')), shared = all.shares.some(finite);
  const scroll = table(place, ['block, head', ...numbers, ...(shared ? numbers : [])],
    [...rows, all].map(row => [row.name, ...cells(row.weights), ...(shared ? cells(row.shares) : [])]),
    [['', 1], ['λ, level', numbers.length], ...(shared ? [['effective share, level', numbers.length]] : [])]);
  scroll.firstChild.className = 'small';
  if (!shared) add(place, element('p', 'This file has no effective shares: it was written before they were recorded.', { class: 'soft' }));
}

// ---- how Gaussian the scores are, by epoch and by width

const probesOf = run => (run.probes || []).filter(probe => (probe.kurtosis_ratio || []).some(finite));

function gaussian() {
  const probed = data.runs.filter(run => probesOf(run).length);
  if (!probed.length) return;
  add(page, element('h2', 'How Gaussian the scores are'));
  const grid = gridIn(page);
  const groups = [...new Set(probed.map(run => run.home))].map(home => probed.filter(run => run.home === home));
  const rest = [];
  groups.forEach((runs, i) => {
    if (i > 1) { rest.push(runs); return; }
    const plain = ['standard', 'hkt'].map(name => runs.find(run => run.of === name)).filter(Boolean);
    const shown = plain.length === 2 ? plain : runs.slice(0, 3);
    kurtosisFigure(grid, shown);
    const others = runs.filter(run => !shown.includes(run));
    if (others.length) rest.push(others);
  });
  groups.forEach(runs => widthFigures(grid, runs));
  if (!rest.length) return;
  const more = gridIn(folded(page, 'κ of the other models'));
  rest.forEach(runs => kurtosisFigure(more, runs));
}

function kurtosisFigure(grid, runs) {
  const lines = runs.flatMap((run, r) => last(probesOf(run)).kurtosis_ratio.map((_, level) => ({
    name: (runs.length > 1 ? (run.short || run.name) + ', ' : '') + 'level ' + level, run, dash: dashes[r % 4],
    x: probesOf(run).map(probe => probe.epoch), y: probesOf(run).map(probe => probe.kurtosis_ratio[level] ?? null) }))).filter(line => line.y.some(finite));
  const values = lines.flatMap(line => line.y).filter(finite), low = Math.min(1, ...values), high = Math.max(1, ...values), margin = 0.06 * (high - low) || 0.1;
  const untested = runs.some(run => lines.filter(line => line.run === run).length < run.config.model.levels);
  figure(grid, {
    title: 'κ by epoch' + (runs[0].home ? ', ' + runs[0].home.short : ''),
    caption: 'Mardia’s kurtosis of the scores over the value that Gaussian scores have, mean over blocks and heads. At the dotted line, 1, ' +
      'they are Gaussian; epoch 0 is before training.' + (untested ? ' Levels with too few tokens for a test are missing.' : ''),
    description: lines.map(line => line.name + ' ends at ' + short(last(line.y))).join('; '),
    traces: () => lines.map(({ x, y, name, dash }, i) => lineOf({ name, x, y, shade: seriesColor(i), dash })),
    layout: () => ({ xaxis: epochAxis(Math.max(1, ...lines.flatMap(line => line.x)), 0),
      yaxis: { title: { text: 'κ / Gaussian κ' }, range: [low - margin, high + margin] },
      shapes: [{ type: 'line', xref: 'paper', x0: 0, x1: 1, y0: 1, y1: 1, line: { color: color('--ink'), dash: 'dot', width: 1.5 } }] }),
  });
}

// Against the model's width, if there are runs of at least three widths.
function widthFigures(grid, group) {
  const runs = group.filter(run => run.config.model.levels > 1);
  const widths = [...new Set(runs.map(run => run.config.model.width))].sort((a, b) => a - b);
  if (widths.length < 3) return;
  const at = (width, pick, level) => pick(probesOf(runs.find(run => run.config.model.width === width))).kurtosis_ratio[level] ?? null;
  const count = Math.max(...runs.map(run => run.config.model.levels));
  [['before training', probes => probes[0]], ['after training', last]].forEach(([when, pick]) => {
    const lines = Array.from({ length: count }, (_, level) => ({ name: 'level ' + level, y: widths.map(width => at(width, pick, level)) }));
    const values = lines.flatMap(line => line.y).filter(finite), low = Math.min(1, ...values), high = Math.max(1, ...values), margin = 0.06 * (high - low) || 0.1;
    figure(grid, {
      title: 'κ against width, ' + when, caption: 'Mardia’s kurtosis of each level’s scores over its value for Gaussian scores, mean over blocks and heads; 1 is Gaussian.',
      description: lines.map(line => line.name + ': ' + widths.map((width, i) => 'd = ' + width + ' ' + short(line.y[i])).join(', ')).join('; '),
      traces: () => lines.map((line, level) => lineOf({ name: line.name, x: widths, y: line.y, mode: 'lines+markers', shade: seriesColor(level) })),
      layout: () => ({ xaxis: { title: { text: 'd' }, type: 'log', tickvals: widths, ticktext: widths.map(String) },
        yaxis: { title: { text: 'κ / Gaussian κ' }, range: [low - margin, high + margin] } }),
    });
  });
}
