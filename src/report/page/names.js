// SPDX-License-Identifier: Apache-2.0
// The report: who is who. Names for people, the runs of an experiment, and what differs between runs.
const published = data.published || { paper: {}, long_range_arena: {} };
// A file may leave out a section whose keys are at their defaults.
data.runs.forEach(run => { run.config = { model: {}, train: {}, data: {}, ...run.config }; });
const isLanguage = run => run.config.model.kind === 'language';
const isLanguageTable = comparison => comparison.kind === 'language';
const isHierarchical = model => (model.level_weights[0] || []).length > 1;
const few = 6;  // an experiment of more models is an ablation: one model, changed in many ways
const capital = text => text.replace(/^[a-z]/, letter => letter.toUpperCase());
const taskNames = { listops: 'ListOps', imdb: 'IMDB', scifar: 'CIFAR-10', lm: 'Language models', enwik8: 'enwik8' };

const words = { hkt: 'HKT', standard: 'Standard', matched: 'Standard, matched size', strong: 'Standard, rotary', convolution: 'Standard, convolution',
  best: 'tuned', rates: 'tuned rate', recipe: 'other recipe' };
function nameOf(model, comparison) {
  const twin = comparison && modelIn(comparison, model.name.replace(/-standard$/, ''));  // the HKT model with the same change
  if (twin && twin !== model && comparison.models.length > few) return capital(twin.what) + ', standard attention';
  if (comparison && !isLanguageTable(comparison) && (comparison.models.length > few || !/^(hkt|standard|matched|strong)/.test(model.name))) return capital(model.what);
  return capital(model.name.split('-').map(word => words[word] || word).join(', '));
}
// 'imdb-best': the task, and what is special.
function experimentName(name) {
  const [task, ...more] = name.split('-');
  return [taskNames[task] || task, ...more].join(', ');
}
// Two may share a name and differ in their budget.
data.comparisons.forEach(comparison => {
  const same = data.comparisons.filter(other => other.experiment === comparison.experiment);
  comparison.short = experimentName(comparison.experiment) + (same.length > 1 ? ', ' + comparison.budget : '');
});
const titleOf = comparison => experimentName(comparison.experiment) + ', ' + comparison.budget + ' budget, ' +
  (comparison.seeds.length > 1 ? comparison.seeds.length + ' seeds' : 'one seed');
const modelIn = (comparison, name) => comparison.models.find(model => model.name === name);
const valuesOf = model => model.test_accuracy || model.test_bits_per_byte;

// Runs of one name are told apart by their folders.
data.runs.forEach(run => { run.twice = !run.experiment && data.runs.some(other => other !== run && !other.experiment && other.name === run.name); });
data.runs.forEach(run => { if (run.twice && run.folder) run.name = run.folder; });

// Of an experiment's runs the page has the first seed's, one for each model.
data.runs.forEach(run => {
  run.home = data.comparisons.find(comparison => comparison.experiment === run.experiment && comparison.budget === run.budget && modelIn(comparison, run.of));
  run.short = run.home ? nameOf(modelIn(run.home, run.of), run.home) : run.name;
  run.label = run.home ? run.short + ', seed ' + (run.config.train.seed ?? 0) : run.name;
  if (run.home && data.comparisons.length > 1) run.label = run.home.short + ': ' + run.label;
});
const ownRuns = data.runs.filter(run => !run.experiment);

// HKT in cool colours, standard attention in warm ones.
function colorIndexOf(models, hierarchical) {
  const cool = [0, 6, 4, 2], warm = [1, 7, 5, 3], seen = [0, 0];
  return models.map(model => hierarchical(model) ? cool[seen[0]++ % 4] : warm[seen[1]++ % 4]);
}
const colorsOfRuns = runs => colorIndexOf(runs, run => run.config.model.levels > 1);

// ---- what differs between runs

const ofNoConcern = new Set(['train.threads', 'train.device', 'train.checkpoint_seconds', 'train.tensorboard']);

function settingsOf(run) {
  return new Map(Object.entries(run.config).filter(([, section]) => typeof section === 'object' && section !== null)
    .flatMap(([section, keys]) => Object.entries(keys).map(([key, value]) => [section + '.' + key, value])));
}

// [{key, values}], a value for each run; one that is not set is undefined.
function differences(runs) {
  const settings = runs.map(settingsOf);
  return [...new Set(settings.flatMap(own => [...own.keys()]))].filter(key => !ofNoConcern.has(key))
    .map(key => ({ key, values: settings.map(own => own.get(key)) }))
    .filter(({ values }) => new Set(values.map(value => JSON.stringify(value))).size > 1);
}
const settingText = value => value === undefined ? '–' : typeof value === 'string' ? value : JSON.stringify(value);
const keyText = key => key.slice(key.indexOf('.') + 1).replace(/_/g, ' ');
