// What this file adds to pages that work without it: keys, copy buttons, times that grow older, and live regions.

const $ = (selector, root = document) => root.querySelector(selector);
const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];

function relative(ms) {
  const s = Math.abs(ms) / 1000;
  if (s < 5) return 'now';
  const text = s < 60 ? `${Math.floor(s)} s` : s < 3600 ? `${Math.floor(s / 60)} min`
    : s < 172800 ? `${Math.floor(s / 3600)} h` : `${Math.floor(s / 86400)} d`;
  return ms < 0 ? `in ${text}` : `${text} ago`;
}

// The clock of the browser may be wrong: ages are measured from the moment when the page came.
const ages = new WeakMap();

function noteTimes(root) {
  for (const t of $$('time[datetime]', root)) {
    if (!ages.has(t)) ages.set(t, { was: parse(t.textContent), at: Date.now() });
  }
}

// parse returns the age that the server has written, to its precision.
function parse(text) {
  const m = /^(in )?(\d+) (s|min|h|d)( ago)?$/.exec(text);
  if (!m) return 0;
  const unit = { s: 1e3, min: 6e4, h: 36e5, d: 864e5 }[m[3]];
  return (m[1] ? -1 : 1) * Number(m[2]) * unit;
}

function growOlder() {
  for (const t of $$('time[datetime]')) {
    const age = ages.get(t);
    if (!age) continue;
    const text = relative(age.was + Date.now() - age.at);
    if (t.textContent !== text) t.textContent = text;
  }
}

function enableCopy(root) {
  if (!navigator.clipboard) return;
  for (const b of $$('button.copy', root)) b.hidden = false;
}

document.addEventListener('click', async (e) => {
  const button = e.target.closest('button.copy');
  if (button) {
    await navigator.clipboard.writeText(button.dataset.copy);
    button.textContent = 'Copied';
    setTimeout(() => { button.textContent = 'Copy'; }, 1500);
  }
  if (e.target.closest('[data-refresh]')) refresh(true);
});

// A page asks again for itself when the server says that it has changed, and takes over its live regions. It does not
// replace a region that the reader points at, writes in, or has selected text of: a button offers the change instead.
const regions = () => $$('[data-live]');

function busy(region) {
  const active = document.activeElement;
  if (region.contains(active) && active.matches('input, textarea, select, button, summary')) return true;
  const selection = document.getSelection();
  if (selection && !selection.isCollapsed && region.contains(selection.anchorNode)) return true;
  const rows = $('.rows, .question', region);
  return Boolean(rows && rows.matches(':hover')) || $$('.question textarea, .question input', region)
    .some((f) => f.type !== 'hidden' && f.value !== f.defaultValue);
}

let running = false;
let again = false;

// A page that nobody uses must not keep the session from ending. One that somebody writes in must, without a request of
// its own: it then asks for a small page that every viewer may read, whatever the answer.
let used = false;
for (const type of ['pointerdown', 'keydown', 'wheel']) {
  addEventListener(type, () => { used = true; }, { passive: true });
}
setInterval(async () => {
  if (!used) return;
  if (regions().length) { refresh(false); return; }
  used = false;
  try { await fetch('/console/sign-in/again', { redirect: 'manual' }); } catch { /* the next click says what is wrong */ }
}, 10 * 60 * 1000);

// A page without live regions must not be loaded again: it may have what somebody writes, or a key that is shown once.
async function refresh(force) {
  if (!regions().length) return;
  if (running) { again = true; return; }
  running = true;
  try {
    const headers = { Accept: 'text/html' };
    if (!force && !used) headers['X-A2ad-Unattended'] = '1';
    used = false;
    const answer = await fetch(location.href, { headers, redirect: 'manual' });
    if (answer.type === 'opaqueredirect') { location.reload(); return; } // the session has ended, maybe in another tab
    if (answer.status === 404) { close(); say('This was removed.'); return; }
    if (!answer.ok) { lose(); return; }
    const next = new DOMParser().parseFromString(await answer.text(), 'text/html');
    for (const region of regions()) {
      const fresh = next.getElementById(region.id);
      if (!fresh || fresh.innerHTML === region.innerHTML) continue;
      if (!force && busy(region)) { patch(region, fresh); offer(true); continue; }
      take(region, fresh);
      offer(false);
    }
  } catch {
    lose();
  } finally {
    running = false;
    if (again) { again = false; refresh(false); }
  }
}

function offer(on) {
  const fresh = $('[data-fresh]');
  if (fresh) fresh.hidden = !on;
}

// patch updates the rows that are there already. They keep their places. The row under the pointer stays as it is, so
// that a click hits what the reader sees.
function patch(region, fresh) {
  for (const tr of $$('tr[id]', region)) {
    const now = fresh.querySelector(`[id="${CSS.escape(tr.id)}"]`);
    if (!now || now.innerHTML === tr.innerHTML || tr.matches(':hover, :focus-within')) continue;
    tr.replaceChildren(...now.cloneNode(true).childNodes);
    tr.classList.add('changed');
    noteTimes(tr);
    enableCopy(tr);
  }
}

function take(region, fresh) {
  const open = new Map($$('details', region).map((d, i) => [d.dataset.keep || i, d.open]));
  const focused = region.contains(document.activeElement) ? document.activeElement.getAttribute('href') : null;
  const old = new Set($$('tr[id]', region).map((tr) => tr.id + tr.className + $('.state', tr)?.textContent));
  const scrolled = $$('.scroll', region).map((s) => s.scrollLeft);
  region.replaceChildren(...fresh.childNodes);
  if (!fresh.dataset.live) { close(); delete region.dataset.live; }
  $$('details', region).forEach((d, i) => {
    const key = d.dataset.keep || i;
    if (open.has(key)) d.open = open.get(key);
  });
  $$('.scroll', region).forEach((s, i) => { s.scrollLeft = scrolled[i] || 0; });
  for (const tr of $$('tr[id]', region)) {
    if (!old.has(tr.id + tr.className + $('.state', tr)?.textContent)) tr.classList.add('changed');
  }
  noteTimes(region);
  enableCopy(region);
  if (focused) $(`a[href="${CSS.escape(focused)}"]`, region)?.focus();
}

let source = null;
let lost = 0; // how often the page has tried in vain to connect
let retry = 0;

// say shows a notice at the edge of the window, where it moves nothing.
function say(text) {
  const notice = $('#notice');
  notice.textContent = text;
  notice.hidden = !text;
}

function close() {
  source?.close();
  source = null;
  clearTimeout(retry);
}

// The server may be away, or may refuse the connection because the session has ended: the page itself says which.
function lose() {
  if (document.hidden || !regions().length) return;
  close();
  if (lost) say('Disconnected from the server. Trying again.'); // not at once: a reload also ends a connection
  retry = setTimeout(() => { open(); refresh(false); }, Math.min(lost, 10) * 1000 + 300);
  lost += 1;
}

// What changed between the answer and the connection is not announced, except where the address has a position in it.
function open() {
  const region = regions()[0];
  if (!region || source) return;
  const at = source = new EventSource(region.dataset.live);
  source.onopen = () => {
    say('');
    if (lost || !region.dataset.live.includes('?after=')) refresh(false);
    lost = 0;
  };
  source.onmessage = () => refresh(false);
  source.onerror = () => { if (source === at) lose(); };
}

// A page that nobody sees has no connection. When it is seen again it first catches up.
document.addEventListener('visibilitychange', () => {
  if (document.hidden) { close(); return; }
  if (regions().length) { open(); refresh(false); }
});
addEventListener('pagehide', close);

let after = '';

document.addEventListener('keydown', (e) => {
  if (e.ctrlKey || e.metaKey || e.altKey || e.target.matches('input, textarea, select')) return;
  const key = e.key;
  if (after === 'g') {
    after = '';
    const link = $(`nav a[data-key="${CSS.escape(key)}"]`);
    if (link) { e.preventDefault(); link.click(); }
    return;
  }
  if (key === 'g') {
    after = 'g';
    setTimeout(() => { after = ''; }, 1500);
  } else if (key === '/') {
    e.preventDefault();
    const field = $('[data-search]');
    if (field) field.focus();
    else location.assign('/console/tasks#q');
  } else if (key === '?') {
    $('#help').showModal();
  } else if (key === 'r') {
    refresh(true);
  } else if (key === 'j' || key === 'k') {
    const rows = $$('[data-row]');
    if (!rows.length) return;
    const at = rows.indexOf(document.activeElement);
    const next = at < 0 ? 0 : Math.min(Math.max(at + (key === 'j' ? 1 : -1), 0), rows.length - 1);
    rows[next].focus();
    rows[next].scrollIntoView({ block: 'nearest' });
  }
});

noteTimes(document);
enableCopy(document);
$('nav a[aria-current]')?.scrollIntoView({ block: 'nearest', inline: 'center' }); // on a narrow screen the row scrolls
setInterval(growOlder, 5000);
if (location.hash === '#q') $('[data-search]')?.focus();
if (!document.hidden) open();
