// SPDX-License-Identifier: Apache-2.0
// Colours, their scales and their legends.

const theme = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const numbersOf = hex => [1, 3, 5].map(at => parseInt(hex.slice(at, at + 2), 16));
const clamp = x => Math.max(0, Math.min(1, x));

// Attention is shown from one ten-thousandth to one, a decade being as wide as the next.
const decades = 4;
const logarithmic = weight => weight > 0 ? clamp(1 + Math.log10(weight) / decades) : 0;

// A colour behind text, and how much of it; in strips, which may show an image, behind text or over a pixel.
const behindText = share => ({ colour: share >= 0 ? 'var(--mark)' : 'var(--against)', amount: clamp(Math.abs(share)) });
const signed = share => isImage ? { colour: share >= 0 ? 'var(--for-pixel)' : 'var(--against-pixel)', amount: clamp(Math.abs(share)) } : behindText(share);
const hues = [215, 150, 50, 15, 320, 275, 185, 95];
const levelColour = level => `hsl(${hues[level]} var(--level-saturation) var(--level-lightness))`;
const cssOf = ({ colour, amount }) => amount < .005 ? 'transparent' : `color-mix(in srgb, ${colour} ${(100 * amount).toFixed(1)}%, transparent)`;

// For pictures: from the card's colour to the chart's, or from one chart colour through the card's to the other.
function palette() {
  const card = numbersOf(theme('--card')), high = numbersOf(theme('--for-chart')), low = numbersOf(theme('--against-chart'));
  const between = (end, amount) => card.map((c, i) => Math.round(c + (end[i] - c) * amount));
  return { sequential: amount => between(high, amount), diverging: share => between(share >= 0 ? high : low, Math.min(1, Math.abs(share))),
    outside: numbersOf(theme('--page')) };
}

const short = x => x === 0 ? '0' : Math.abs(x) >= 100 ? x.toFixed(0) : Math.abs(x) >= .1 ? x.toFixed(2) : x.toPrecision(2);
const minus = text => text.replace('-', '−');
const probability = log => {
  const p = Math.exp(log);
  return p > .9995 ? '> 0.999' : p >= .001 ? p.toFixed(3) : p >= 5e-5 ? p.toFixed(4) : p >= 0 ? '< 0.0001' : 'unknown';
};

// Below a section's heading, and below a model's name where there are several.
const subHeading = (text, kind = '') => element(models.length > 1 ? 'h4' : 'h3', text, { class: 'sub ' + kind });

function ramp(colours, from, to, what = '') {
  const made = element('div', undefined, { class: 'legend' }), bar = element('span', undefined, { class: 'ramp' });
  bar.style.background = `linear-gradient(to right, ${colours.join(', ')})`;
  made.append(from, bar, to, element('span', what));
  return made;
}

function attentionLegend(chart) {
  return ramp(['var(--card)', chart ? 'var(--for-chart)' : signed(1).colour], '≤ 0.0001', '1 (logarithmic)');
}

function signedLegend(limit, what, chart) {
  const [low, high] = chart ? ['var(--against-chart)', 'var(--for-chart)'] : [signed(-1).colour, signed(1).colour];
  return ramp([low, 'var(--card)', high], '≤ −' + short(limit), '≥ +' + short(limit), what);
}
