// SPDX-License-Identifier: Apache-2.0
// The report: learning curves, as bands over seeds; language models by position in the context, and what they write.

// The mean over seeds at each point, between the lowest and the highest.
function band(curves, along, key) {
  const longest = curves.reduce((a, b) => (b[key].length > a[key].length ? b : a));
  const at = i => curves.map(curve => curve[key][i]).filter(finite);
  const points = longest[key].map((_, i) => i).filter(i => at(i).length);
  return { x: points.map(i => longest[along][i]), middle: points.map(i => mean(at(i))), low: points.map(i => Math.min(...at(i))),
    high: points.map(i => Math.max(...at(i))) };
}

function bandTraces({ name, curves, shade, dash }, along, scale = 1, xScale = 1) {
  const { x, middle, low, high } = band(curves, along, 'validation');
  const at = x.map(value => value * xScale), times = list => list.map(value => value * scale);
  const edge = { mode: 'lines', x: at, line: { width: 0, color: faded(shade, 0) }, showlegend: false, hoverinfo: 'skip', legendgroup: name };
  return [...(curves.length > 1 ? [{ ...edge, y: times(low) }, { ...edge, y: times(high), fill: 'tonexty', fillcolor: faded(shade, 0.22) }] : []),
    lineOf({ name, x: at, y: times(middle), shade: color(shade), dash, digits: 2, legendgroup: name })];
}

// HKT and standard attention on one axis.
function curveFigure(grid, comparison) {
  const shades = colorIndexOf(comparison.models, isHierarchical), language = isLanguageTable(comparison);
  const lines = comparison.models.map((model, i) => ({ name: nameOf(model, comparison), shade: '--c' + shades[i], dash: dashOf(i),
    curves: (comparison.curves || []).filter(curve => curve.model === model.name) })).filter(line => line.curves.length);
  if (!lines.length) return;
  const several = comparison.seeds.length > 1, spread = several ? 'Lines: means over seeds; bands: from the lowest seed to the highest. ' : '';
  if (!language) {
    const chance = comparison.classes > 1 ? 100 / comparison.classes : null;
    curves(grid, { title: 'Validation accuracy by epoch, ' + comparison.short, caption: spread + (chance ? 'Dashed: chance.' : ''), lines,
      along: 'epochs', unit: 'epoch', scale: 100, y: '%', chance });
    return;
  }
  const caption = spread + 'Validation, after each epoch.';
  curves(grid, { title: 'Bits per byte against what was read, ' + comparison.short, caption, lines, along: 'bytes', xScale: 1e-6,
    unit: 'million bytes', y: 'bits per byte' });
  curves(grid, { title: 'Bits per byte against time, ' + comparison.short, caption, lines, along: 'seconds', unit: 'seconds of training', y: 'bits per byte' });
}

function curves(grid, { title, caption, lines, along, unit, scale = 1, xScale = 1, y, chance = null }) {
  const longest = Math.max(...lines.flatMap(line => line.curves.map(curve => curve.epochs.length)));
  figure(grid, {
    title, caption,
    description: lines.map(line => line.name + ' ends at ' + (scale * mean(line.curves.map(curve =>
      last(curve.validation)).filter(finite))).toFixed(scale === 100 ? 2 : 3)).join('; '),
    traces: () => lines.flatMap(line => bandTraces(line, along, scale, xScale)),
    layout: () => ({ xaxis: along === 'epochs' ? epochAxis(longest) : { title: { text: unit }, rangemode: 'tozero' }, yaxis: { title: { text: y } },
      shapes: chance ? [{ type: 'line', xref: 'paper', x0: 0, x1: 1, y0: chance, y1: chance, line: { color: color('--soft'), dash: 'dash', width: 1.5 } }] : [] }),
  });
}

// ---- runs by themselves

const curveOf = run => {
  let seconds = 0;
  const language = isLanguage(run), key = language ? 'bits_per_byte' : 'accuracy';
  return { seed: run.config.train.seed, epochs: run.epochs.map(epoch => epoch.epoch + 1), seconds: run.epochs.map(epoch => seconds += epoch.seconds),
    bytes: run.epochs.map(epoch => epoch.step * run.config.train.batch * run.config.model.max_length),
    training: run.epochs.map(epoch => epoch['train_' + key]), validation: run.epochs.map(epoch => epoch['validation_' + key]) };
};

function learning() {
  const trained = ownRuns.filter(run => run.epochs.length);
  if (!trained.length) return;
  add(page, element('h2', 'Training'));
  const grid = gridIn(page);
  const groups = [trained.filter(run => !isLanguage(run)), trained.filter(isLanguage)];
  groups.forEach((runs, language) => {
    if (!runs.length) return;
    const shades = colorsOfRuns(runs);
    const lines = runs.map((run, i) => ({ name: run.name, shade: '--c' + shades[i], dash: dashes[Math.floor(i / 4) % 4], curves: [curveOf(run)] }));
    if (language) {
      curves(grid, { title: 'Bits per byte against what was read', caption: 'Validation, after each epoch.', lines, along: 'bytes', xScale: 1e-6,
        unit: 'million bytes', y: 'bits per byte' });
      curves(grid, { title: 'Bits per byte against time', caption: 'Validation, after each epoch.', lines, along: 'seconds',
        unit: 'seconds of training', y: 'bits per byte' });
      const tested = runs.filter(run => run.test && run.test.by_position);
      if (tested.length) positionFigure(grid, '', tested.map(run => ({ name: run.name, ranges: run.test.by_position })), colorsOfRuns(tested));
    } else {
      const sizes = new Set(runs.map(run => run.config.model.classes)), chance = sizes.size === 1 && [...sizes][0] > 1 ? 100 / [...sizes][0] : null;
      curves(grid, { title: 'Validation accuracy by epoch', caption: chance ? 'Dashed: one in ' + [...sizes][0] + ', the number of classes.' : '',
        lines, along: 'epochs', unit: 'epoch', scale: 100, y: '%', chance });
    }
    lossFigure(runs.length > 4 ? gridIn(folded(page, 'Loss of training and validation')) : grid, runs, shades);
  });
}

// Where validation rises while training falls, the model learns by heart.
function lossFigure(grid, runs, shades) {
  figure(grid, {
    title: 'Loss by epoch' + (isLanguage(runs[0]) ? ', language models' : ''),
    caption: 'Solid: validation; dotted: training. Where the one rises while the other falls, the model learns by heart.',
    description: runs.map(run => run.name + ': training ' + short(last(run.epochs).train_loss) + ', validation ' +
      short(last(run.epochs).validation_loss) + ' at the end').join('; '),
    traces: () => runs.flatMap((run, i) => ['validation_loss', 'train_loss'].map(key =>
      lineOf({ name: run.name, x: run.epochs.map(epoch => epoch.epoch + 1), y: run.epochs.map(epoch => epoch[key]),
      shade: seriesColor(shades[i]), dash: key === 'train_loss' ? 'dot' : 'solid', digits: 4, legendgroup: run.name, showlegend: key === 'validation_loss' }))),
    layout: () => ({ xaxis: epochAxis(Math.max(...runs.map(run => run.epochs.length))), yaxis: { title: { text: 'loss' } } }),
  });
}

// ---- language models

function positionFigure(grid, experiment, lines, shades) {
  const middle = range => Math.sqrt((range.begin + 1) * range.end);
  figure(grid, {
    title: 'Bits per byte by position in the context' + (experiment ? ', ' + experiment : ''),
    caption: 'Test; how much a prediction costs with so many bytes before it, in ranges that double in length.',
    description: lines.map(line => line.name + ' from ' + bits(line.ranges[0].bits_per_byte) + ' to ' + bits(last(line.ranges).bits_per_byte)).join('; '),
    traces: () => lines.map((line, i) => lineOf({ name: line.name, x: line.ranges.map(middle), y: line.ranges.map(range => range.bits_per_byte),
      mode: 'lines+markers', shade: seriesColor(shades[i]),
      text: line.ranges.map(range => range.end === range.begin + 1 ? 'position ' + range.begin : 'positions ' + range.begin + ' to ' +
        (range.end - 1)), hovertemplate: '%{text}: %{y:.3f}<extra>' + line.name + '</extra>' })),
    layout: () => ({ xaxis: { type: 'log', title: { text: 'bytes before, and itself' }, dtick: 1 }, yaxis: { title: { text: 'bits per byte' } } }),
  });
}

// What each model makes of the same lines.
function samples() {
  const written = data.runs.filter(run => run.sample);
  if (!written.length) return;
  const first = written[0].sample;
  const place = folded(page, 'Samples of what the language models write');
  add(place, element('p', 'Each model goes on from the same lines of the test text, here in grey' + (finite(first.temperature)
    ? '; temperature ' + first.temperature + ', seed ' + first.seed : '') + '. Bytes that are no text appear as �.', { class: 'soft' }));
  const grid = gridIn(place, 'narrow');
  written.forEach(run => {
    const text = add(element('pre', undefined, { class: 'sample' }), element('span', run.sample.prompt, { class: 'prompt' }), run.sample.text);
    add(grid, add(element('div'), element('h3', run.label), text));
  });
}
