// SPDX-License-Identifier: Apache-2.0
// The page from top to bottom: answers, words, attention by scale.

const page = document.getElementById('page');

// A section with a column for each model.
function section(title, note) {
  page.append(element('h2', title));
  if (note) page.append(element('p', note, { class: 'soft' }));
  const controls = element('div', undefined, { class: 'controls' }), columns = element('div', undefined, { class: 'columns' });
  page.append(controls, columns);
  const cards = models.map(model => {
    const card = element('section', undefined, { class: 'card', 'aria-label': `${title}, ${model.name}` });
    if (models.length > 1) card.append(element('h3', model.name));
    columns.append(card);
    return card;
  });
  return { cards, controls };
}

function answerLine(model) {
  const [{ name, log }] = answersAt(model, length - 1), line = element('p', undefined, { class: 'answer' });
  if (models.length > 1) line.append(model.name + ': ');
  line.append(model.next ? 'most probable next byte ' : 'prediction ', element('strong', name), ` (${probability(log)})`);
  if (data.label !== null) line.append(data.label === name ? ', which is the label.' : `; the label is ${data.label}.`);
  return line;
}

// ---- attention by scale

function sharesTable(model, parent) {
  if (model.levels < 2) return () => {};
  const figure = element('figure'), scroll = element('div', undefined, { class: 'scroll' }), table = element('table'), head = element('thead'), names = element('tr');
  const body = element('tbody'), caption = element('figcaption');
  names.append(element('th', '', {}), ...range(0, model.levels).map(level => element('th', `level ${level}`, { scope: 'col' })));
  head.append(names);
  table.append(head, body);
  scroll.append(table);
  figure.append(subHeading('How much each level decides'), scroll, caption);
  parent.append(figure);
  const mean = rows => range(0, model.levels).map(level => rows.reduce((sum, row) => sum + row[level], 0) / rows.length);
  return token => {
    const shares = model.blocks.map((_, block) => range(0, model.heads).map(index => sharesOf(rowOf(headOf(model, block, index), token))));
    const { block, head: index } = model.selected;
    const rows = [['this head', shares[block][index]], [`block ${block}, mean`, mean(shares[block])], ['all blocks, mean', mean(shares.flat())]];
    body.replaceChildren(...rows.map(([name, values]) => {
      const row = element('tr');
      row.append(element('th', name, { scope: 'row' }), ...values.map(value => {
        const cell = element('td', minus((100 * value).toFixed(0)) + ' %');
        cell.style.background = cssOf(behindText(value));
        return cell;
      }));
      return row;
    }));
    caption.textContent = `Of what distinguishes the keys for ${tokenName} ${token}, ${nameOf(token)}: the covariance of a level’s weighted scores with the sum of all, ` +
      'over the variance of the sum. A negative share works against the others.';
  };
}

function topKeys(attention) {
  return Array.from(attention, (weight, j) => [weight, j]).sort((a, b) => b[0] - a[0]).slice(0, 3)
    .map(([weight, j]) => `${nameOf(j)} at ${j} (${short(weight)})`).join('; ');
}

class Scales {
  constructor(model, card) {
    this.model = model;
    this.multiples = new Multiples(model, card, (block, head) => this.choose(block, head));
    this.title = subHeading('', 'block');
    card.append(this.title);
    this.attended = new Strip('Attention of the selected ' + tokenName);
    this.attended.legend.append(attentionLegend(false));
    card.append(this.attended.figure);
    this.windows = new Windows(model, card);
    this.shares = sharesTable(model, card);
    this.levels = range(0, model.levels).map(level => new Strip(model.levels > 1 ? `Level ${level}, in positions of ${counted(1 << level, tokenName)}` : 'Scores'));
    const strips = element('div', undefined, { class: isImage ? 'pictures' : '' });
    strips.append(...this.levels.map(strip => strip.figure));
    card.append(strips);
    selection.listeners.push(token => this.show(token));
  }

  choose(block, head) {
    this.model.selected = { block, head };
    this.multiples.mark();
    this.show(selection.token);
    this.maps.draw();
  }

  show(token) {
    const { model } = this, head = selectedHead(model), row = rowOf(head, token), parts = contributions(row);
    this.title.textContent = `Block ${model.selected.block}, head ${model.selected.head}`;
    this.attended.paint(j => signed(logarithmic(row.attention[j])));
    this.attended.mark(token);
    this.attended.caption.textContent = `${tokenName[0].toUpperCase() + tokenName.slice(1)} ${token}, ${nameOf(token)} attends most to ${topKeys(row.attention)}.`;
    const limit = limitOf([parts]);
    this.levels.forEach((strip, level) => {
      const window = windowOf(model, level, token >> level);
      strip.paint(j => j < row.seen ? signed(parts[level][j] / limit) : signed(0));
      strip.mark(token, level > 0 ? window : {});
      strip.legend.replaceChildren(signedLegend(limit, 'added to the score of each key; one scale for all levels'));
      strip.caption.textContent = level > 0 ? `${describe(level, token >> level, window)}${isImage ? '' : ' (dotted and solid lines)'}; λ = ${head.weights[level].toFixed(3)}.`
        : `λ = ${head.weights[0].toFixed(3)}.`;
    });
    this.windows.show(token);
    this.shares(token);
  }
}

// ---- the page

document.title = data.title;
page.replaceChildren(element('h1', data.title), ...models.map(answerLine));
page.classList.toggle('two', models.length > 1);

const hint = `Point at a ${tokenName}, or use the arrow keys, to select it in all strips; click to keep it selected.`;
const answers = section(models[0].next ? 'The next byte, and the scale it came from' : 'The answer, and the scale it came from', models.some(model => model.next) ? hint : '');
models.forEach((model, i) => {
  new Answers(model, answers.cards[i]);
  origins(model, answers.cards[i]);
});

if (models.some(wordsOf)) {
  const size = data.unit_size > 1 ? `Runs of ${counted(data.unit_size, unitName)} are` : `Each ${unitName} is`;
  const words = section(isImage ? 'Which parts made the decision' : `Which ${unitName}s made the decision`,
    `Leave-one-out: ${size[0].toLowerCase() + size.slice(1)} ${leftOut} in turn and the model answers again. The colour is the change in the log-odds of the chosen answer: ` +
    `blue where it becomes less probable without the ${unitName}, red where more. Of two that say the same, each can look unimportant.`);
  addWords(words.cards, words.controls);
}

const scales = section('Attention by scale', hint);
const views = models.map((model, i) => new Scales(model, scales.cards[i]));
const maps = section('The selected heads, whole', 'The scores of all levels have one colour scale.');
views.forEach((view, i) => { view.maps = new Maps(models[i], maps.cards[i]); });

const where = data.where;
page.append(element('p', `Attention, scores and shares are computed in this page, from the queries and keys of the model in float32; probabilities by hkt ${where.version ?? ''} ` +
  `(commit ${where.commit ?? 'unknown'}, torch ${where.torch ?? ''}). In the browser’s console, explanation.rowOf(explanation.headOf(explanation.models[0], block, head), ${tokenName}) ` +
  'gives the numbers of a row.', { class: 'soft' }));

// The strongest word of the answer, rather than the end of the text.
function firstToken() {
  const [model] = models;
  if (model.next || !wordsOf(model)) return length - 1;
  return effectsOf(model, 0).reduce((a, b) => Math.abs(b.effect) > Math.abs(a.effect) ? b : a).positions[0];
}

selection.token = firstToken();

function drawAll() {
  for (const view of views) {
    view.multiples.draw();
    view.maps.draw();
  }
  select(selection.token);
}
drawAll();
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', drawAll);
window.explanation = { data, models, characters, headOf, rowOf, contributions, sharesOf, windowOf };
document.documentElement.dataset.ready = 'yes';
