// SPDX-License-Identifier: Apache-2.0
// What the scripts of both pages begin with: the data, and elements made of them.
'use strict';

const data = JSON.parse(document.getElementById('data').textContent);

function element(tag, text, options = {}) {
  const made = document.createElement(tag);
  if (text !== undefined && text !== null) made.textContent = text;
  for (const [name, value] of Object.entries(options)) made.setAttribute(name, value);
  return made;
}
