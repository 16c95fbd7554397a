// SPDX-License-Identifier: Apache-2.0
// The whole input as a strip whose tokens are coloured, and the token that is selected in all strips.

const selection = { token: Math.max(0, length - 1), pinned: false, listeners: [] };

function select(token) {
  selection.token = Math.max(0, Math.min(length - 1, token));
  for (const listener of selection.listeners) listener(selection.token);
}

function pin(token) {
  selection.pinned = !selection.pinned || selection.token !== token;
  select(token);
}

function point(token) {
  if (!selection.pinned && token !== selection.token) select(token);
}

const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -16, ArrowDown: 16, Home: -Infinity, End: Infinity };

function onKey(event) {
  if (!(event.key in steps)) return;
  event.preventDefault();
  selection.pinned = true;
  const step = steps[event.key] * (isImage && Math.abs(steps[event.key]) === 16 ? 2 : 1);
  select(selection.token + step);
}

// paint(i → {colour, amount}) colours tokens; mark({saw, stands}) underlines what a position saw and stands for.
class Strip {
  constructor(title, selectable = true) {
    this.figure = element('figure');
    this.legend = element('div');
    this.caption = element('figcaption');
    this.body = isImage ? this.image(title) : this.text(title);
    if (selectable) {
      this.body.tabIndex = 0;
      this.body.addEventListener('keydown', onKey);
    }
    this.figure.append(subHeading(title), this.legend, this.body, this.caption);
  }

  text(title) {
    const body = element('div', undefined, { class: 'strip', role: 'group', 'aria-label': title + '. Arrow keys select a ' + tokenName + '.' });
    this.spans = characters.map(({ text, begin, raw }) => {
      const shown = text === '\n' || text === '\r\n' ? '↵\n' : text === '\t' ? '⇥\t' : text;
      const span = element('span', shown, raw ? { class: 'raw' } : {});
      span.addEventListener('mouseenter', () => point(begin));
      span.addEventListener('click', () => pin(begin));
      body.append(span);
      if (data.input === 'expressions') body.append(' ');
      return span;
    });
    return body;
  }

  image(title) {
    const body = element('canvas', undefined, { class: 'picture', role: 'img', width: 256, height: 256, 'aria-label': title + ', over the image of 32 by 32 pixels.' });
    const tokenOf = event => {
      const box = body.getBoundingClientRect(), at = (value, size) => Math.max(0, Math.min(31, Math.floor(32 * value / size)));
      return 32 * at(event.clientY - box.top, box.height) + at(event.clientX - box.left, box.width);
    };
    body.addEventListener('mousemove', event => point(tokenOf(event)));
    body.addEventListener('click', event => pin(tokenOf(event)));
    return body;
  }

  paint(colourOf) {
    if (isImage) return this.paintImage(colourOf);
    characters.forEach(({ begin, end }, index) => {
      const colours = Array.from({ length: end - begin }, (_, i) => cssOf(colourOf(begin + i)));
      const part = 100 / colours.length;
      const background = colours.every(colour => colour === colours[0]) ? colours[0]
        : `linear-gradient(to right, ${colours.map((colour, i) => `${colour} ${i * part}% ${(i + 1) * part}%`).join(', ')})`;
      this.spans[index].style.background = background;
    });
    return undefined;
  }

  paintImage(colourOf) {
    const context = this.body.getContext('2d'), size = 8;
    for (let i = 0; i < length; ++i) {
      const { colour, amount } = colourOf(i), place = [size * (i & 31), size * (i >> 5), size, size];
      context.globalAlpha = 1;
      context.fillStyle = `rgb(${tokens[i]}, ${tokens[i]}, ${tokens[i]})`;
      context.fillRect(...place);
      context.globalAlpha = .85 * amount;
      context.fillStyle = theme(colour.slice(4, -1));
      context.fillRect(...place);
    }
    context.globalAlpha = 1;
  }

  // Frames the selected token; in a text also underlines.
  mark(token, { saw, stands } = {}) {
    if (isImage) return this.markImage(token, stands);
    const within = (range, { begin, end }) => range !== undefined && begin <= range[1] && range[0] < end;
    this.spans.forEach((span, index) => {
      span.classList.toggle('selected', index === characterAt[token]);
      span.classList.toggle('stands', within(stands, characters[index]));
      span.classList.toggle('seen', within(saw, characters[index]) && !within(stands, characters[index]));
    });
    return undefined;
  }

  markImage(token, stands) {
    const context = this.body.getContext('2d');
    context.strokeStyle = '#ffd400';
    context.lineWidth = 2;
    const [from, to] = stands ?? [token, token];
    context.strokeRect(8 * (from & 31), 8 * (from >> 5), 8 * (to - from + 1), 8);
  }
}
