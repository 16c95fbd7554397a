// SPDX-License-Identifier: Apache-2.0
// Looks at an open page as its readers will, and returns what is wrong with it, in sentences. tests/python/browser.py runs it.
async () => {
  const troubles = [];
  const say = text => { if (troubles.length < 40) troubles.push(text); };
  const words = node => (node.textContent || '').trim().replace(/\s+/g, ' ').slice(0, 60);
  const pause = milliseconds => new Promise(done => setTimeout(done, milliseconds));
  const visible = node => node.checkVisibility({ opacityProperty: true, visibilityProperty: true }) && node.getClientRects().length > 0;

  // Everything unfolded, and everything drawn that is drawn when it comes into view.
  document.querySelectorAll('details').forEach(details => { details.open = true; });
  const places = [...document.querySelectorAll('.plot')];
  const isDrawn = place => place.querySelector('.main-svg') !== null;
  for (const place of places) {
    for (let round = 0; round < 20 && !isDrawn(place); ++round) {
      place.scrollIntoView();
      await pause(50);
    }
  }
  scrollTo(0, 0);
  await pause(300);

  // ---- plots
  const numbers = list => Array.isArray(list) || ArrayBuffer.isView(list) ? Array.from(list).flat(Infinity).filter(Number.isFinite).length : 0;
  const typed = value => value && value.bdata ? [1] : value;  // as Plotly packs arrays
  for (const place of places) {
    const name = (place.getAttribute('aria-label') || 'a plot without a name').slice(0, 60);
    if (!isDrawn(place)) { say(`${name}: not drawn`); continue; }
    const empty = trace => !['x', 'y', 'z'].some(key => numbers(typed(trace[key])) > 0);
    if (!place.data || place.data.length === 0) say(`${name}: no traces`);
    else if (place.data.every(empty)) say(`${name}: no data`);
    const frame = place.getBoundingClientRect();
    const texts = [...place.querySelectorAll('.main-svg text')].filter(text => words(text) && visible(text));
    for (const text of texts) {
      const box = text.getBoundingClientRect();
      if (box.left < frame.left - 2 || box.right > frame.right + 2 || box.top < frame.top - 2 || box.bottom > frame.bottom + 2)
        say(`${name}: “${words(text)}” is cut off`);
    }
    const labels = texts.filter(text => text.closest('.xtick, .ytick, .y2tick, .xtitle, .ytitle, .y2title, .g-xtitle, .g-ytitle, .g-y2title'));
    const overlap = (a, b) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1 && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 3;
    place.querySelectorAll('.legend').forEach(legend => {
      const covered = labels.find(label => overlap(legend.getBoundingClientRect(), label.getBoundingClientRect()));
      if (covered) say(`${name}: the legend covers “${words(covered)}”`);
    });
    labels.forEach((label, i) => labels.slice(i + 1).forEach(other => {
      if (overlap(label.getBoundingClientRect(), other.getBoundingClientRect())) say(`${name}: “${words(label)}” lies on “${words(other)}”`);
    }));
  }

  // ---- nothing overflows
  const wide = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth > wide) say(`the page is ${document.documentElement.scrollWidth} pixels wide, the window ${wide}`);
  const scrolls = node => { for (let at = node; at && at !== document.body; at = at.parentElement) { if (/auto|scroll/.test(getComputedStyle(at).overflowX)) return true; } return false; };
  for (const node of document.querySelectorAll('main *')) {
    if (!visible(node) || node.closest('svg') || scrolls(node)) continue;
    const box = node.getBoundingClientRect();
    if (box.right > wide + 1 || box.left < -1) say(`${node.tagName.toLowerCase()} “${words(node)}” reaches from ${box.left.toFixed(0)} to ${box.right.toFixed(0)}`);
  }

  // ---- contrast, after WCAG: 4.5, of large text 3
  const canvas = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
  const rgba = color => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = color;
    canvas.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
    return [r, g, b, a / 255];
  };
  const over = (top, under) => [0, 1, 2].map(i => top[i] * top[3] + under[i] * (1 - top[3])).concat(1);
  const ground = node => {
    const layers = [];
    for (let at = node; at; at = at.parentElement) layers.push(rgba(getComputedStyle(at).backgroundColor));
    return layers.reverse().reduce((under, top) => over(top, under), [255, 255, 255, 1]);
  };
  const luminance = ([r, g, b]) => [r, g, b].map(c => c / 255).map(c => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const contrast = (a, b) => { const [low, high] = [luminance(a), luminance(b)].sort((x, y) => x - y); return (high + 0.05) / (low + 0.05); };
  const seen = new Set();
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode.parentElement;
    if (!walker.currentNode.textContent.trim() || seen.has(node) || /SCRIPT|STYLE|NOSCRIPT|OPTION/.test(node.tagName) || !visible(node)) continue;
    seen.add(node);
    if (node.closest('.heatmaplayer, .bars')) continue;  // drawn on their own colours, which Plotly chooses for
    const style = getComputedStyle(node), inPlot = node.closest('svg');
    const ink = rgba(inPlot ? style.fill : style.color);
    if (ink[3] === 0 || parseFloat(style.fontSize) === 0) continue;
    const under = ground(inPlot ? inPlot.closest('.plot') || inPlot.parentElement : node);
    const large = parseFloat(style.fontSize) >= 24 || (parseFloat(style.fontSize) >= 18.5 && Number(style.fontWeight) >= 700);
    const found = contrast(over(ink, under), under);
    if (found < (large ? 3 : 4.5)) say(`“${words(node)}” has a contrast of ${found.toFixed(2)}`);
  }

  // ---- what a screen reader says
  document.querySelectorAll('[role="img"]').forEach(node => {
    const label = node.getAttribute('aria-label') || '';
    if (label.length < 20) say(`an image is described by “${label}” alone`);
    if (/NaN|undefined|null|Infinity|\[object/.test(label)) say(`an image is described by “${label.slice(0, 100)}”`);
  });
  document.querySelectorAll('.plot, main svg').forEach(node => { if (!node.closest('[role="img"]')) say(`a drawing has no description: “${words(node)}”`); });
  document.querySelectorAll('figure').forEach(node => { if (!node.querySelector('figcaption, h3')) say('a figure has neither title nor caption'); });
  document.querySelectorAll('table').forEach(node => { if (!node.querySelector('th[scope]')) say(`a table has no headers: “${words(node)}”`); });
  document.querySelectorAll('button, select, input, summary, a').forEach(node => {
    if (visible(node) && !words(node) && !node.getAttribute('aria-label')) say(`a ${node.tagName.toLowerCase()} has no name`);
  });
  const levels = [...document.querySelectorAll('h1, h2, h3, h4')].filter(visible).map(node => [Number(node.tagName[1]), words(node)]);
  if (levels.filter(([level]) => level === 1).length !== 1) say('the page has not exactly one h1');
  levels.forEach(([level, text], i) => { if (i && level > levels[i - 1][0] + 1) say(`the heading “${text}” skips a level`); });
  const ids = [...document.querySelectorAll('[id]')].map(node => node.id).filter(id => document.querySelectorAll('#' + CSS.escape(id)).length > 1);
  if (ids.length) say('an id occurs twice: ' + ids[0]);

  const text = document.querySelector('main').innerText;
  (text.match(/\b(NaN|undefined|Infinity)\b|\[object|could not be drawn/g) || []).slice(0, 3).forEach(found => say(`the text has “${found}”`));
  return troubles;
}
