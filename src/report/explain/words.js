// SPDX-License-Identifier: Apache-2.0
// Which words made the decision: each is left out in turn, and the model answers again.

// In a text the others keep their places, which coarse levels and positions depend on.
const leftOut = isImage ? 'replaced by the mean of the image' : data.input === 'texts' ? 'blanked out with spaces' : 'left out';

// How much each unit adds to the log-odds of an answer, and the probability of the answer without it.
function effectsOf(model, answer) {
  const count = model.next ? model.next.count : model.answers.length;
  const log = model.next ? model.next.log[(length - 1) * count + answer] : model.log[answer];
  return data.units.map((positions, unit) => {
    const without = model.log_by_unit[unit * count + answer];
    return { positions, without, effect: logOdds(log) - logOdds(without) };
  });
}

const wordsOf = model => model.log_by_unit.length > 0;

function listed(effects, most) {
  const name = data.unit_size > 1 ? counted(data.unit_size, unitName) : unitName;
  const scroll = element('div', undefined, { class: 'scroll' }), table = element('table'), head = element('thead'), names = element('tr'), body = element('tbody');
  names.append(element('th', name, { scope: 'col' }), element('th', 'against ↔ for', { scope: 'col' }), element('th', 'log-odds', { scope: 'col' }),
    element('th', 'without it', { scope: 'col' }));
  head.append(names);
  for (const { positions, without, effect } of effects) {
    const row = element('tr'), label = element('th', undefined, { scope: 'row' }), bar = element('td'), change = element('span', undefined, { class: 'change' }), part = element('i');
    const text = isImage ? `rows ${positions[0] >> 5}–${(positions[0] >> 5) + 3}, columns ${positions[0] & 31}–${(positions[0] & 31) + 3}` : textOf(positions);
    const width = 50 * clamp(Math.abs(effect) / most);
    part.style.cssText = `left: ${effect < 0 ? 50 - width : 50}%; width: ${width}%; background: var(${effect < 0 ? '--against-chart' : '--for-chart'})`;
    label.append(element('span', text, { class: 'long', title: text }));
    change.append(part);
    bar.append(change);
    row.append(label, bar, element('td', minus((effect >= 0 ? '+' : '') + short(effect))), element('td', probability(without)));
    body.append(row);
  }
  table.append(head, body);
  scroll.append(table);
  return scroll;
}

// One model's words for the chosen answer, on a scale that the models share.
class Words {
  constructor(model, parent) {
    this.model = model;
    this.strip = new Strip(`What each ${unitName} adds`, false);
    this.list = element('div');
    parent.append(this.strip.figure, subHeading(`The strongest ${unitName}${unitName === 'patch' ? 'es' : 's'}`), this.list);
  }

  show(effects, most, name) {
    const shown = 8, byToken = new Float64Array(length);
    for (const { positions, effect } of effects) for (const position of positions) byToken[position] = effect;
    this.strip.paint(token => signed(byToken[token] / most));
    this.strip.legend.replaceChildren(signedLegend(most, `log-odds of “${name}”`));
    if (!isImage) {
      for (const { positions, without, effect } of effects) {
        const title = `“${textOf(positions)}”: ${minus((effect >= 0 ? '+' : '') + effect.toFixed(2))} log-odds; probability without it ${probability(without)}`;
        for (const position of positions) this.strip.spans[characterAt[position]].title = title;
      }
    }
    this.list.replaceChildren(listed([...effects].sort((a, b) => Math.abs(b.effect) - Math.abs(a.effect)).slice(0, shown), most));
  }
}

// The section: a choice of the answer, and every model's words.
function addWords(columns, controls) {
  const views = models.map((model, i) => wordsOf(model) ? new Words(model, columns[i]) : null);
  const names = model => answersAt(model, length - 1).map(({ name }) => name);
  const all = [...new Set(models.filter(wordsOf).flatMap(names))];
  const label = element('label', models[0].next ? 'next byte ' : 'class '), choice = element('select');
  for (const name of all) choice.append(element('option', name, { value: name }));
  label.append(choice);
  controls.append(label);
  const show = () => {
    const effects = models.map(model => wordsOf(model) && names(model).includes(choice.value) ? effectsOf(model, names(model).indexOf(choice.value)) : null);
    const most = Math.max(1e-6, ...effects.flatMap(own => own ? own.map(({ effect }) => Math.abs(effect)).filter(Number.isFinite) : []));
    views.forEach((view, i) => {
      if (!view) return;
      if (effects[i]) view.show(effects[i], most, choice.value);
      else view.list.replaceChildren(element('p', `“${choice.value}” is not among the ${names(models[i]).length} most probable answers of this model.`, { class: 'note' }));
      view.strip.figure.hidden = !effects[i];
    });
  };
  choice.addEventListener('change', show);
  show();
}
