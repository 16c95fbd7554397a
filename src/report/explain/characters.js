// SPDX-License-Identifier: Apache-2.0
// The input as people read it: characters of one or several bytes, tokens of an expression, or pixels.

const utf8 = new TextDecoder('utf-8', { fatal: true });
const escaped = byte => '\\x' + byte.toString(16).padStart(2, '0');

function decoded(bytes) {
  try {
    return utf8.decode(bytes);
  } catch {
    return null;
  }
}

// How many bytes the character that begins so has; 0 where none does.
const bytesIn = first => first < 0x80 ? 1 : first < 0xc2 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : first < 0xf5 ? 4 : 0;

// [{text, begin, end, raw}]: code points, and bytes that are none.
function codePoints() {
  const found = [];
  for (let begin = 0, end; begin < length; begin = end) {
    end = begin + Math.max(1, bytesIn(tokens[begin]));
    let text = bytesIn(tokens[begin]) && end <= length ? decoded(tokens.subarray(begin, end)) : null;
    const raw = text === null || (text < ' ' && text !== '\n' && text !== '\t');
    if (raw) [text, end] = [escaped(tokens[begin]), begin + 1];
    found.push({ text, begin, end, raw });
  }
  return found;
}

// What readers take for one character: emoji of several code points, letters with their accents.
function joined(points) {
  if (!Intl.Segmenter) return points;
  const found = [], segmenter = new Intl.Segmenter('en', { granularity: 'grapheme' });
  for (let i = 0; i < points.length;) {
    if (points[i].raw) {
      found.push(points[i++]);
      continue;
    }
    let last = i;
    while (last < points.length && !points[last].raw) ++last;
    for (const { segment } of segmenter.segment(points.slice(i, last).map(point => point.text).join(''))) {
      const count = [...segment].length;
      found.push({ text: segment, begin: points[i].begin, end: points[i + count - 1].end, raw: false });
      i += count;
    }
  }
  return found;
}

const characters = data.input === 'texts' ? joined(codePoints())
  : Array.from(tokens, (token, i) => ({ text: data.texts[i] ?? String(token), begin: i, end: i + 1, raw: false }));
const characterAt = new Uint32Array(length);
characters.forEach((character, index) => characterAt.fill(index, character.begin, character.end));

const visible = text => text.replaceAll('\r\n', '↵').replaceAll('\n', '↵').replaceAll('\t', '⇥').replace(/^ $/, '␣');

// A token in a sentence.
function nameOf(token) {
  if (isImage) return `row ${token >> 5}, column ${token & 31}`;
  const { text, begin, end } = characters[characterAt[token]];
  return `“${visible(text)}”` + (end - begin > 1 ? ` (byte ${token - begin + 1} of ${end - begin})` : '');
}

// The characters that these tokens belong to, with a space where some are left out.
function textOf(positions) {
  const indices = [...new Set(positions.map(position => characterAt[position]))];
  return visible(indices.map((index, i) => (i && (data.input === 'expressions' || index > indices[i - 1] + 1) ? ' ' : '') + characters[index].text).join(''));
}

const unitName = data.input === 'texts' ? 'word' : data.input === 'expressions' ? 'token' : 'patch';
const tokenName = data.input === 'texts' ? 'byte' : data.input === 'expressions' ? 'token' : 'pixel';
const counted = (count, name) => `${count} ${name}${count === 1 ? '' : name === 'patch' ? 'es' : 's'}`;

// A byte that might come after a token; one that completes a character is shown as that character.
function nextName(after, byte) {
  if (data.input !== 'texts') return String(byte);
  if (byte === 0) return 'end';
  if (byte < 0x80) return byte < 32 && byte !== 9 && byte !== 10 ? escaped(byte) : visible(String.fromCharCode(byte));
  if (byte < 0xc0) {
    for (let first = after; first >= Math.max(0, after - 2); --first) {
      const bytes = [...tokens.subarray(first, after + 1), byte];
      if (bytesIn(bytes[0]) === bytes.length && decoded(Uint8Array.from(bytes)) !== null) return decoded(Uint8Array.from(bytes));
    }
  }
  return escaped(byte);
}
