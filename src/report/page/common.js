// SPDX-License-Identifier: Apache-2.0
// What the report is made of: tables, colours, and plots, which are drawn when they come into view.
const page = document.getElementById('page');
const color = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const seriesColor = index => color('--c' + index % 8);
const dashes = ['solid', 'dash', 'dot', 'dashdot'];
const dashOf = index => dashes[Math.floor(index / 8) % 4];  // once the colours have been used up
const isNarrow = () => innerWidth < 600;

function add(parent, ...children) {
  parent.append(...children);
  return parent;
}
function added(parent, child) {
  parent.append(child);
  return child;
}
const gridIn = (parent, kind = '') => added(parent, element('div', undefined, { class: 'grid ' + kind }));

// Folded away until somebody asks.
function folded(parent, title) {
  return added(parent, add(element('details'), element('summary', title)));
}

// ---- Plotly, packed by pack.py: gzip, as five characters for four bytes

function unbase85(text) {
  const alphabet = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%,()*+-;.=/?:^_[{|}~';
  const values = new Uint8Array(128);
  for (let i = 0; i < alphabet.length; ++i) values[alphabet.charCodeAt(i)] = i;
  const bytes = new DataView(new ArrayBuffer(text.length / 5 * 4));
  for (let i = 0; i < text.length; i += 5) {
    let group = 0;
    for (let j = i; j < i + 5; ++j) group = group * 85 + values[text.charCodeAt(j)];
    bytes.setUint32(i / 5 * 4, group);
  }
  return bytes.buffer;
}

async function unpackPlotly() {
  const packed = document.getElementById('plotly');
  const [size, text] = packed.textContent.split(' ');
  packed.remove();
  const stream = new Blob([unbase85(text).slice(0, Number(size))]).stream().pipeThrough(new DecompressionStream('gzip'));
  (0, eval)(await new Response(stream).text());  // as a script of its own, in the global scope
}

// ---- tables: the first column names the rows and stays in view. A head or a cell is a text, or {text, class, style, title, node}.
// `groups`, where there are any, is a line above the heads: [text, number of columns].

function cellOf(tag, cell, options) {
  const { text, node, ...more } = typeof cell === 'object' && cell !== null ? cell : { text: cell };
  const made = element(tag, text === undefined || text === null ? undefined : String(text), { ...options, ...more });
  if (node) made.append(...[node].flat());
  return made;
}

function table(parent, heads, rows, groups = []) {
  const head = add(element('tr'), ...heads.map(cell => cellOf('th', cell, { scope: 'col' })));
  const above = groups.length ? [add(element('tr'), ...groups.map(([text, span]) => element('th', text, { scope: 'colgroup', colspan: span, class: 'group' })))] : [];
  const body = rows.map(([name, ...cells]) =>
    add(element('tr'), cellOf('th', name, { scope: 'row' }), ...cells.map(cell => cellOf('td', cell))));
  const made = add(element('table'), add(element('thead'), ...above, head), add(element('tbody'), ...body));
  return added(parent, add(element('div', undefined, { class: 'scroll' }), made));
}

// A cell whose colour says how large a share is, from 0 to 1; one below zero has another colour.
function shareCell(value, text) {
  if (!finite(value)) return '–';
  const strength = Math.round(100 * Math.min(1, Math.abs(value)));
  return { text, style: `background: color-mix(in srgb, var(${value < 0 ? '--against' : '--heat'}) ${strength}%, transparent)` };
}

// ---- numbers

const finite = x => typeof x === 'number' && Number.isFinite(x);
const percent = x => finite(x) ? (100 * x).toFixed(2) + '\u00a0%' : '–';
const minus = text => text.replace(/-/g, '−');
// A minus where the program prints a hyphen, and no line break before a percent sign.
const readable = text => text.replace(/(^|[\s([])-(?=\d)/g, '$1−').replace(/(\d) %/g, '$1\u00a0%');
const fixed = (x, digits) => minus(x.toFixed(digits)).replace(/^−(0\.?0*)$/, '$1');
const short = x => !finite(x) ? '–' : minus(x === 0 || (Math.abs(x) >= 1e-3 && Math.abs(x) < 1e4) ? x.toFixed(3) : x.toExponential(1));
const signed = (x, digits) => (x >= 0 ? '+' : '−') + Math.abs(x).toFixed(digits);
const mean = list => list.reduce((a, b) => a + b, 0) / list.length;
const last = list => list[list.length - 1];

// ---- plots

// Whole epochs only.
const epochAxis = (longest, first = 1) => ({ title: { text: 'epoch' }, dtick: Math.max(1, Math.ceil(longest / 8)),
  range: [first - Math.min(0.5, 0.04 * longest), 1.04 * longest] });
// Decades, and what lies between them where there are few.
function logarithmic(values) {
  const positive = values.filter(value => value > 0), decades = positive.length ? Math.log10(Math.max(...positive) / Math.min(...positive)) : 0;
  return { type: 'log', dtick: decades > 3 ? 1 : 'D2', exponentformat: 'power' };
}

const plots = new Map();  // from the place of each to what draws it
const isDrawn = place => place.querySelector('.main-svg') !== null;

function faded(name, opacity) {
  const [r, g, b] = color(name).match(/[0-9a-f]{2}/gi).map(part => parseInt(part, 16));
  return `rgba(${r},${g},${b},${opacity})`;
}

// A long name in several lines, because the names of an axis may take half of a phone.
function wrapped(text, width = isNarrow() ? 16 : 34) {
  const lines = [''];
  text.split(' ').forEach(word => {
    if (lines[lines.length - 1] && (last(lines) + ' ' + word).length > width) lines.push('');
    lines[lines.length - 1] += (last(lines) ? ' ' : '') + word;
  });
  return lines.join('<br>');
}

// In rem: as many rows as there are labels, each as high as the longest of them, and the axis.
const heightFor = (labels, least = 1.7) => labels.length * Math.max(least, ...labels.map(label => 0.95 * label.split('<br>').length + 0.5)) + 4;

function drawPlot(place, { traces, layout = () => ({}) }, legend) {
  if (typeof Plotly === 'undefined') {
    place.textContent = 'This browser cannot unpack the plots.';
    return;
  }
  const drawn = traces();
  const { xaxis = {}, yaxis = {}, ...rest } = layout();
  const axis = { gridcolor: color('--line'), zerolinecolor: color('--line'), automargin: true, fixedrange: isNarrow() };
  Plotly.react(place, drawn.map(trace => ({ ...trace, showlegend: false })), {
    paper_bgcolor: 'rgba(0,0,0,0)', plot_bgcolor: 'rgba(0,0,0,0)', font: { color: color('--ink'), size: 12 },
    margin: { l: 46, r: 14, t: 8, b: 42 }, hoverlabel: { bgcolor: color('--card'), font: { color: color('--ink') } },
    xaxis: { ...axis, ...xaxis }, yaxis: { ...axis, ...yaxis }, ...rest,
  }, { responsive: true, displayModeBar: false });
  drawLegend(place, drawn, legend);
}

// Above the plot rather than in it: it wraps, covers nothing, and its buttons hide what they name.
function drawLegend(place, traces, legend) {
  const named = traces.map((trace, i) => [trace, i]).filter(([trace]) => trace.name && trace.showlegend !== false);
  legend.hidden = named.length < 2;
  legend.replaceChildren(...named.map(([trace, index]) => {
    const button = element('button', undefined, { type: 'button', 'aria-pressed': 'true' });
    const mark = element('i', undefined, { 'aria-hidden': 'true' });
    const line = (trace.mode || '').includes('lines');
    const shade = line ? (trace.line || {}).color : (trace.marker || {}).color;
    if (!line) {
      mark.className = 'dot';
      mark.style.background = shade;
    } else {
      mark.style.borderTopColor = shade;
      mark.style.borderTopStyle = { dash: 'dashed', dot: 'dotted', dashdot: 'dashed' }[trace.line.dash] || 'solid';
    }
    button.addEventListener('click', () => {
      const shown = button.getAttribute('aria-pressed') === 'false';
      button.setAttribute('aria-pressed', String(shown));
      const same = traces.map((other, i) => [other, i]).filter(([other, i]) => i === index || (trace.legendgroup && other.legendgroup === trace.legendgroup));
      Plotly.restyle(place, { visible: shown }, same.map(([, i]) => i));
    });
    return add(button, mark, element('span', trace.name));
  }));
}

// A line in one colour; points alone where there is only one.
const lineOf = ({ name, x, y, shade, dash, digits = 3, ...more }) => ({ name, x, y, mode: x.length > 1 ? 'lines' : 'markers',
  line: { color: shade, dash, width: 2 }, marker: { color: shade }, hovertemplate: `%{y:.${digits}f}<extra>${name}</extra>`, ...more });

// {title, caption, description, traces, layout, height}: traces and layout are functions, since colours depend on the hour.
function figure(parent, what) {
  const place = element('div', undefined, { class: 'plot', role: 'img', 'aria-label': what.title + '. ' + what.description });
  if (what.height) place.style.height = what.height + 'rem';
  const legend = element('div', undefined, { class: 'legend', role: 'group', 'aria-label': 'What is drawn' });
  legend.hidden = true;
  add(parent, add(element('figure'), element('h3', what.title), legend, place, element('figcaption', what.caption)));
  plots.set(place, () => drawPlot(place, what, legend));
}

// After the page is laid out, because a plot takes the width of its place; those that are folded away have none yet.
function drawPlots() {
  const observer = new IntersectionObserver(entries => entries.filter(entry => entry.isIntersecting).forEach(entry => {
    observer.unobserve(entry.target);
    if (!isDrawn(entry.target)) plots.get(entry.target)();
  }), { rootMargin: '600px' });
  plots.forEach((draw, place) => observer.observe(place));
  addEventListener('beforeprint', () => plots.forEach((draw, place) => { if (!isDrawn(place) && place.checkVisibility()) draw(); }));
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => plots.forEach((draw, place) => { if (isDrawn(place)) draw(); }));
}
