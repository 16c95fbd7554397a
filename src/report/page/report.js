// SPDX-License-Identifier: Apache-2.0
// The report: its order. The answer, what practitioners ask, one table of verdicts, the figures that carry them; the rest is folded.

// A missing or malformed value in the files of a run affects only one part of the page.
function part(draw, place = page) {
  try {
    draw();
  } catch (error) {
    add(place, element('p', 'A part of this page could not be drawn: a file of the runs contains something unexpected (' + error.message + ').', { class: 'soft' }));
  }
}

function provenance() {
  add(page, element('h2', 'Where this comes from'));
  const commands = data.comparisons.filter(comparison => comparison.command);
  if (commands.length) {
    const list = commands.length > 3 ? folded(page, 'The commands of the ' + commands.length + ' experiments') : page;
    add(list, add(element('ul', undefined, { class: 'soft' }), ...commands.map(({ command, where = {} }) => add(element('li'), element('code', command),
      ', ' + ['commit ' + where.commit, (where.gpus || []).length ? [...new Set(where.gpus)].join(', ') : where.processor, where.date].filter(Boolean).join(', ')))));
  }
  if (data.runs.length) {
    const configs = folded(page, data.runs.length > 1 ? 'The configs of ' + data.runs.length + ' runs' : 'The config');
    data.runs.forEach(run => add(folded(configs, [run.label, run.folder].filter(Boolean).join(', ')), element('pre', JSON.stringify(run.config, null, 2))));
  }
  add(page, element('p', 'Written by hkt ' + data.where.version + ', commit ' + data.where.commit + ', on ' + data.where.date + ', ' +
    data.where.processor + '.', { class: 'soft' }));
}

page.replaceChildren();
document.title = title() + ': report';
part(answer);
part(runsTable);
part(classes);
part(learning);
// Of experiments the verdicts come first, of own data what was learned from it.
const answersClaims = data.comparisons.length > 0 && examined.length > 0;
if (answersClaims) part(claims);
part(experiments);
part(levels);
part(gaussian);
if (!answersClaims) part(claims);
part(samples);
part(provenance);
drawPlots();
document.documentElement.dataset.ready = 'yes';
