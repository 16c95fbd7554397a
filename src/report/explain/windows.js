// SPDX-License-Identifier: Apache-2.0
// What the selected token's position saw at each level, and what it stands for.

function bar(kind, [from, to], begin, count) {
  const made = element('i', undefined, { class: kind });
  made.style.left = `${100 * (from - begin) / count}%`;
  made.style.width = `${100 * (to - from + 1) / count}%`;
  return made;
}

const rangeText = ([from, to]) => from === to ? String(from) : `${from} to ${to}`;

function describe(level, position, { saw, stands }) {
  return `Level ${level}, position ${position}: saw ${tokenName}s ${rangeText(saw)}, stands for ${rangeText(stands)}`;
}

class Windows {
  constructor(model, parent) {
    this.model = model;
    const figure = element('figure'), legend = element('div', undefined, { class: 'legend' });
    this.body = element('div', undefined, { class: 'windows' });
    this.caption = element('figcaption');
    const key = (kind, text) => {
      const item = element('span');
      item.append(element('span', undefined, { class: 'key line ' + kind }), text);
      return item;
    };
    legend.append(key('dotted', 'what the position saw, through the filters'), key('', 'what it stands for: these keys and queries share its scores'));
    figure.append(subHeading('The positions of the selected ' + tokenName), legend, this.body, this.caption);
    parent.append(figure);
  }

  show(token) {
    const { model } = this, levels = Array.from({ length: model.levels }, (_, level) => ({ level, position: token >> level, window: windowOf(model, level, token >> level) }));
    // What was seen lies to the left; a little of what comes after is shown too.
    const context = 24, end = Math.min(length - 1, Math.max(token + context / 3, ...levels.map(({ window }) => window.stands[1])));
    const begin = Math.max(0, Math.min(end - context, ...levels.map(({ window }) => window.saw[0])));
    const count = end - begin + 1, rows = [];
    for (const { level, position, window } of levels) {
      const track = element('div', undefined, { class: 'track', role: 'img', 'aria-label': describe(level, position, window) });
      track.append(bar('saw', window.saw, begin, count), bar('for', window.stands, begin, count));
      rows.push(element('div', `level ${level} · ${position}`), track);
    }
    const letter = data.input === 'texts' ? 9 : 34, room = (this.body.clientWidth || 300) - 80;
    if (!isImage && count * letter <= room) {
      const text = element('div', undefined, { class: 'text', 'aria-hidden': 'true' });
      for (let i = begin; i <= end; ++i) {
        const { text: own, begin: first } = characters[characterAt[i]];
        text.append(element('span', first === i ? visible(own) : '·', i === token ? { class: 'selected' } : {}));
      }
      rows.push(element('div', ''), text);
    }
    this.body.replaceChildren(...rows);
    this.caption.textContent = levels.slice(1).map(({ level, position, window }) => describe(level, position, window)).join('. ') + (levels.length > 1 ? '.' : '') +
      (model.levels > 1 ? ` With ${model.taps} taps position m of level l sees ${tokenName}s 2^l·m − ${model.taps > 2 ? model.taps - 1 + '·' : ''}(2^l − 1)` +
        (model.convolution_taps > 1 ? ` − ${model.convolution_taps - 1}` : '') + ' to 2^l·m, as they enter the block.' : '');
  }
}
