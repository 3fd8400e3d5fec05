'use strict';
(() => {
  const byId = (id) => document.getElementById(id);
  const tables = () => [...document.querySelectorAll('table[id]')];
  const filter = byId('filter');
  const collator = new Intl.Collator(undefined, {numeric: true, sensitivity: 'base'});
  // What is looked at stays in the address: q, state, and by table the column that it is sorted by, with - for down.
  const view = new URLSearchParams(location.hash.slice(1));

  // Rows that are drawn as grids stay rows of a table for screen readers.
  const roles = {caption: 'caption', 'thead, tbody': 'rowgroup', tr: 'row', 'thead th': 'columnheader', 'tbody th': 'rowheader', td: 'cell'};
  function name(table) {
    if (table.role) return;
    for (const [selector, role] of Object.entries(roles)) {
      for (const one of table.querySelectorAll(selector)) one.role = role;
    }
    table.role = 'table';
  }

  function keep(name, value) {
    if (value) view.set(name, value); else view.delete(name);
    try { history.replaceState(null, '', '#' + view); } catch { /* a frame without an address of its own */ }
  }

  function keyOf(row, column) {
    const cell = row.rows[0].cells[column];
    const value = cell.dataset.v;
    if (value === undefined) return cell.textContent.trim();
    return value === '' ? null : Number(value);
  }

  function sort(table) {
    const wanted = view.get(table.id);
    if (wanted === null) return;
    const column = Math.abs(parseInt(wanted, 10)), down = wanted.endsWith('-');
    const heads = table.tHead.rows[0].cells;
    if (!(column < heads.length)) return;
    for (const head of heads) head.setAttribute('aria-sort', 'none');
    heads[column].setAttribute('aria-sort', down ? 'descending' : 'ascending');
    const rows = [...table.tBodies].map((row) => [keyOf(row, column), row]);
    rows.sort(([a], [b]) => {
      if (a === null || b === null) return (a === null) - (b === null);  // what is not known comes last
      const order = typeof a === 'number' ? a - b : collator.compare(a, b);
      return down ? -order : order;
    });
    const all = document.createDocumentFragment();
    for (const [, row] of rows) all.append(row);
    table.append(all);
  }

  function show() {
    tables().forEach(name);
    byId('controls').hidden = !document.querySelector('main table[id]');  // nothing to look through
    const words = (view.get('q') ?? '').toLowerCase().split(/\s+/).filter(Boolean);
    const state = view.get('state');
    for (const table of tables()) {
      let count = 0;
      for (const row of table.tBodies) {
        const text = row.textContent.toLowerCase();
        const fits = words.every((word) => text.includes(word))
          && (!state || !row.dataset.state || row.dataset.state === state);
        if (row.hidden === fits) row.hidden = !fits;
        count += fits;
      }
      table.hidden = count === 0;
      table.nextElementSibling.hidden = count !== 0;
      if (table.id === 'tables') {
        const of = table.tBodies.length;
        byId('found').textContent = count === of ? '' : `${count.toLocaleString('en')} of ${of.toLocaleString('en')} tables`;
      }
    }
    for (const chip of document.querySelectorAll('.chip')) chip.setAttribute('aria-pressed', chip.dataset.state === state);
  }

  document.addEventListener('click', (event) => {
    const button = event.target.closest('button');
    if (button?.dataset.state) {
      keep('state', view.get('state') === button.dataset.state ? '' : button.dataset.state);
      show();
    } else if (button?.closest('th')) {
      const head = button.closest('th'), table = head.closest('table');
      keep(table.id, head.cellIndex + (head.ariaSort === 'ascending' ? '-' : ''));
      sort(table);
    }
  });
  filter.addEventListener('input', () => { keep('q', filter.value.trim()); show(); });
  byId('controls').addEventListener('submit', (event) => event.preventDefault());

  // Live: parts that have changed take the place of those before, and what is looked at stays as it was.
  const parts = (root) => [...root.querySelectorAll('[data-part]')];
  const sources = new Map(parts(document).map((part) => [part.dataset.part, part.innerHTML]));

  function swap(fresh) {
    const names = (root) => parts(root).map((part) => part.dataset.part).join();
    if (names(fresh) !== names(document)) { location.reload(); return; }
    const focus = document.activeElement?.id || document.activeElement?.closest('th')?.textContent;
    const table = document.activeElement?.closest('table')?.id;
    for (const part of parts(fresh)) {
      const name = part.dataset.part;
      if (sources.get(name) === part.innerHTML) continue;
      sources.set(name, part.innerHTML);
      const old = document.querySelector(`[data-part="${name}"]`);
      for (const one of old.querySelectorAll('details[open]')) part.querySelector('#' + one.id)?.setAttribute('open', '');
      const places = [...old.querySelectorAll('.scroll[id]')].map((one) => [one.id, one.scrollLeft]);
      old.replaceWith(part);
      for (const [id, left] of places) if (byId(id)) byId(id).scrollLeft = left;
    }
    tables().forEach(sort);
    show();
    if (table && focus && !document.activeElement?.closest('table')) {
      [...byId(table).querySelectorAll('th button')].find((one) => one.textContent === focus)?.focus({preventScroll: true});
    } else if (focus && document.activeElement === document.body) byId(focus)?.focus({preventScroll: true});
  }

  async function refresh() {
    if (document.hidden) return;
    let said = '';
    try {
      const answer = await fetch(location.pathname, {cache: 'no-store'});
      const text = await answer.text();
      if (answer.ok) swap(new DOMParser().parseFromString(text, 'text/html'));
      else said = text;
    } catch {
      said = 'mirrorlib serve does not answer: what is shown is of the moment above.';
    }
    const trouble = byId('trouble');
    if (trouble.textContent !== said) trouble.textContent = said;
    trouble.hidden = !said;
  }

  filter.value = view.get('q') ?? '';
  tables().forEach(sort);
  show();
  const every = Number(document.documentElement.dataset.every);
  if (every) setInterval(refresh, every * 1000);
})();
