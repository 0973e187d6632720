// Draws what /api/events and /api/sessions tell of the server.
//
// Targets and user agents are written by strangers: all text is set by textContent.

/** What a chart shows, in seconds. */
const WINDOW_S = 300;
/** Headlines that count look back so far. */
const RECENT_S = 60;
/** A stream is sent to once a period, so its rate is that of some periods. */
const RATE_S = 6;
/** A break in the samples is a break in the line. */
const GAP_S = 3;
/** Without a sample for so long, the page says so. */
const SILENCE_MS = 5000;
const RETRY_MS = 2000;
/** Streams are asked for with every second sample. */
const SESSIONS_EVERY = 2;
const SESSIONS_SHOWN = 50;
/** From here on a risk is shown as one. */
const RISK_SHOWN = 0.1;

// ---- numbers as people read them

const count = (number) => Math.round(number).toLocaleString('en');

function threeDigits(value) {
  if (value < 9.995) return value.toFixed(2);
  return value < 99.95 ? value.toFixed(1) : value.toFixed(0);
}

function scaled(value, step, units) {
  let at = 0;
  while (value >= step * 0.9995 && at < units.length - 1) {
    value /= step;
    at += 1;
  }
  return at === 0 ? `${count(value)} ${units[0]}` : `${threeDigits(value)} ${units[at]}`;
}

const bits = (value) => scaled(value, 1000, ['bit/s', 'kbit/s', 'Mbit/s', 'Gbit/s', 'Tbit/s']);
const bytes = (value) => scaled(value, 1024, ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB']);
const percent = (share) => `${share > 0 && share < 0.0995 ? (100 * share).toFixed(1)
  : (100 * share).toFixed(0)} %`;
const plural = (number, thing) => `${count(number)} ${thing}${number === 1 ? '' : 's'}`;

function milliseconds(ms) {
  const size = Math.abs(ms);
  if (size < 999.5) return `${Math.round(ms)} ms`;
  return `${ms < 0 ? '-' : ''}${threeDigits(size / 1000)} s`;
}

function duration(seconds) {
  const whole = Math.round(seconds);
  const two = (number) => String(number).padStart(2, '0');
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${two(whole % 60)} s`;
  const hours = Math.floor(whole / 3600);
  if (hours < 48) return `${hours} h ${two(Math.floor(whole / 60) % 60)} min`;
  return `${Math.floor(hours / 24)} days ${hours % 24} h`;
}

/** Of a scale: 2 s, not 2.00 s. */
const trimmed = (text) => text.replace(/(\.\d*?)0+ /, '$1 ').replace('. ', ' ');

/** Of a class of slack. */
const bound = (ms) => (ms % 1000 === 0 && ms !== 0 ? `${ms / 1000} s` : `${ms} ms`);

const known = (value, format) => (value === null || value === undefined ? '–' : format(value));

// ---- what is shown: a card is an entry here

/** What was added to a total within the last minute. */
function recent(samples, total) {
  const last = samples.at(-1);
  const first = samples.find((one) => one.time_s >= last.time_s - RECENT_S);
  return Math.max(0, total(last) - total(first));
}

/** Periods of the last minute by their slack, and the class that the median is in. */
function recentSlack(samples) {
  const { counts: all, bounds_ms: bounds } = samples.at(-1).slack;
  const counts = all.map((_, at) => recent(samples, (one) => one.slack.counts[at]));
  const periods = counts.reduce((sum, one) => sum + one, 0);
  let below = 0;
  const median = counts.findIndex((one) => {
    below += one;
    return one > 0 && 2 * below >= periods;
  });
  return { counts, bounds, periods, median };
}

/** What was sent within some periods before a sample, in bits a second. */
function recentRate(one) {
  const first = samples.find((other) => other.time_s >= one.time_s - RATE_S - 0.5);
  if (!first || first.time_s >= one.time_s) return one.sent_bits_per_s;
  return Math.max(0, 8 * (one.sent_bytes - first.sent_bytes)) / (one.time_s - first.time_s);
}

/** How full the house is, and who was turned away. */
function room(admission) {
  if (!admission.is_limited) return 'there is no limit';
  const names = { disk: 'the disk', processors: 'the processors', network: 'the network' };
  const parts = Object.entries(names)
    .map(([key, name]) => [name, admission.taken[key], admission.limit[key]])
    .concat([['the places', admission.streams, admission.streams_max ?? 0]])
    .filter(([, , limit]) => limit > 0)
    .map(([name, taken, limit]) => [name, taken / limit])
    .sort((one, other) => other[1] - one[1]);
  return parts.length === 0 ? '' : `${percent(parts[0][1])} of ${parts[0][0]} taken`;
}

function refusals(admission) {
  if (!admission.is_limited) return '';
  const words = {
    disk: 'the disk', processors: 'the processors', network: 'the network', streams: 'the places',
    late: 'streams that are late', busy: 'rates not found yet',
  };
  const why = Object.entries(admission.refused_why)
    .filter(([, times]) => times > 0)
    .sort((one, other) => other[1] - one[1])
    .map(([key]) => words[key] ?? key);
  const because = why.length > 0 ? ` for ${why.join(', ')}` : '';
  const shut = admission.is_shut ? '; nobody is let in, as streams are late' : '';
  return `; ${count(admission.refused)} refused${because}${shut}`;
}

const CARDS = [
  {
    title: 'Streams',
    draw: line,
    of: (one) => one.sessions_count,
    format: count,
    least: 4,
    note: (one) => `${room(one.admission)}${refusals(one.admission)}`,
  },
  {
    title: 'Sent',
    draw: line,
    of: (one) => one.recent_bits_per_s,
    format: bits,
    least: 1e6,
    note: (one) => `in the last ${RATE_S} s; ${bytes(one.sent_bytes)} and `
      + `${plural(one.requests, 'request')} since the start, `
      + `${plural(one.connections_open, 'connection')} open`,
  },
  {
    title: 'Missed periods, last minute',
    draw: bars,
    of: (one) => (one.misses_per_s === null ? null : one.misses_per_s * one.interval_s),
    format: count,
    least: 4,
    headline: (samples) => count(recent(samples, (one) => one.misses)),
    isBad: (samples) => recent(samples, (one) => one.misses) > 0,
    note: (one) => `${count(one.misses)} of ${count(one.periods)} so far, `
      + `${count(one.held_back)} held back by players`,
  },
  {
    title: 'Slack, median of the last minute',
    draw: slackBars,
    format: count,
    least: 4,
    headline: (samples) => {
      const { bounds, median } = recentSlack(samples);
      return median < 0 ? '–' : slackClass(bounds, median);
    },
    isBad: (samples) => {
      const { bounds, median } = recentSlack(samples);
      return isLate(bounds, median);
    },
    note: (one, samples) => {
      const { periods } = recentSlack(samples);
      return periods > 0 ? `in hand at the end of ${plural(periods, 'period')}`
        : 'no period of a paced stream has ended';
    },
  },
  {
    title: 'Disk busy',
    draw: line,
    of: (one) => (one.disk ? one.disk.busy_share : null),
    format: percent,
    least: 1,
    note: (one) => {
      const { in_flight: flying, waiting } = one.reads;
      const reads = flying + waiting === 0 ? ''
        : `; ${count(flying)} in flight, ${count(waiting)} waiting`;
      if (!one.disk) return `no disk is known${reads}`;
      const rate = known(one.disk.read_bytes_per_s, (value) => `${bytes(value)}/s`);
      return `${one.disk.name}: ${rate}${reads}`;
    },
  },
  {
    title: 'Processor',
    draw: line,
    of: (one) => one.process.cpu_cores,
    format: percent,
    least: 0.1,
    note: (one) => `of a core; ${bytes(one.process.resident_bytes)} of memory, `
      + `${plural(one.process.open_files, 'descriptor')}`,
  },
];

const COLUMNS = [
  { name: 'Target and client', fill: fillTarget },
  {
    name: 'State',
    about: 'sending: it is its turn; waiting: what was due is sent; blocked: its player or its '
      + 'network takes no more; reading: the disk reads for it',
    text: (one) => one.state,
  },
  { name: 'Rate', text: (one) => (one.rate_bits_per_s ? bits(one.rate_bits_per_s) : 'unpaced') },
  { name: 'Sent', fill: (cell, one) => fillMeter(cell, one.sent_bytes / (one.len_bytes || 1)) },
  { name: 'Periods', about: 'that have ended', text: (one) => count(one.periods) },
  {
    name: 'Missed',
    about: 'periods of which not all was there in time',
    text: (one) => count(one.misses),
    isBad: (one) => one.misses > 0,
  },
  {
    name: 'Slack',
    about: 'time in hand at the end of the last period; less than nothing is late',
    text: (one) => known(one.slack_ms, milliseconds),
    isBad: (one) => one.slack_ms !== null && one.slack_ms < 0,
  },
  {
    name: 'Buffer',
    about: 'what the player has and has not played yet, if it plays since it asked',
    text: (one) => known(one.buffer_s, (value) => milliseconds(1000 * value)),
  },
  {
    name: 'Risk',
    about: 'that its player runs dry, by how its buffer changed so far',
    fill: (cell, one) => fillMeter(cell, one.rebuffer_risk),
    isBad: (one) => one.rebuffer_risk !== null && one.rebuffer_risk >= RISK_SHOWN,
  },
];

// ---- elements

const element = (id) => document.getElementById(id);

function made(parent, name, className = '') {
  const child = document.createElement(name);
  if (className) child.className = className;
  parent.append(child);
  return child;
}

function madeSvg(parent, name, className) {
  const child = document.createElementNS('http://www.w3.org/2000/svg', name);
  child.setAttribute('class', className);
  parent.append(child);
  return child;
}

/** Leaves alone what is so already: a selection stays. */
function setText(target, text) {
  if (target.textContent !== text) target.textContent = text;
}

// ---- charts; a plot is 0 to WINDOW_S wide and 100 high, whatever its size on the screen

function madeCard(card) {
  const box = made(element('cards'), 'section', 'card');
  setText(made(box, 'h2'), card.title);
  card.value = made(box, 'p', 'value');
  card.words = made(box, 'p', 'note');
  card.plot = made(box, 'div', 'plot');
  card.svg = madeSvg(card.plot, 'svg', '');
  card.svg.setAttribute('viewBox', `0 0 ${WINDOW_S} 100`);
  card.svg.setAttribute('preserveAspectRatio', 'none');
  card.svg.setAttribute('role', 'img');
  madeSvg(card.svg, 'path', 'grid').setAttribute('d', `M0 0H${WINDOW_S}M0 50H${WINDOW_S}`);
  madeSvg(card.svg, 'path', 'base').setAttribute('d', `M0 100H${WINDOW_S}`);
  card.paths = ['area', 'line', 'bars', 'bars bad'].map((name) =>
    madeSvg(card.svg, 'path', name));
  card.scales = [0, 50].map((top) => {
    const scale = made(card.plot, 'span', 'scale');
    scale.style.top = `${top}%`;
    return scale;
  });
  card.axis = made(box, 'div', 'axis');
  card.cursor = made(card.plot, 'div', 'cursor');
  card.tip = made(card.plot, 'div', 'tip');
  card.points = [];
  const leave = () => {
    card.pointer = null;
    point(card);
  };
  leave();
  card.plot.addEventListener('pointermove', (event) => {
    const box = card.plot.getBoundingClientRect();
    card.pointer = (event.clientX - box.left) / box.width;
    point(card);
  });
  card.plot.addEventListener('pointerleave', leave);
}

/** Shows the point that is next to the pointer, of `points` with `x` 0 to 1 and `text`. */
function point(card) {
  const { pointer, points } = card;
  const isOver = pointer !== null && points.length > 0;
  card.cursor.hidden = !isOver;
  card.tip.hidden = !isOver;
  if (!isOver) return;
  const away = (one) => Math.abs(one.x - pointer);
  const next = points.reduce((best, one) => (away(one) < away(best) ? one : best));
  setText(card.tip, next.text);
  card.cursor.style.left = `${100 * next.x}%`;
  const isRight = next.x > 0.5;
  card.tip.style.left = isRight ? 'auto' : `calc(${100 * next.x}% + 0.5rem)`;
  card.tip.style.right = isRight ? `calc(${100 - 100 * next.x}% + 0.5rem)` : 'auto';
}

/** Few digits with zeros, and at least as much. */
function roundedUp(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  const steps = [1, 1.5, 2, 3, 4, 5, 6, 8, 10];
  return steps.map((step) => step * power).find((step) => step >= value * 0.999);
}

/** What the lines of the grid stand for. */
function setScale(card, top) {
  const format = card.format === count ? (value) => value.toLocaleString('en') : card.format;
  setText(card.scales[0], trimmed(format(top)));
  setText(card.scales[1], trimmed(format(top / 2)));
}

/** The samples of a card in its window, and the height of its scale. */
function framed(card, samples) {
  const last = samples.at(-1).time_s;
  const points = samples
    .map((one) => ({ at: one.time_s, x: WINDOW_S - (last - one.time_s), value: card.of(one) }))
    .filter((one) => one.x >= 0 && one.value !== null);
  const most = Math.max(card.least, ...points.map((one) => one.value));
  const top = roundedUp(most);
  setScale(card, top);
  if (card.axis.children.length === 0) {
    setText(made(card.axis, 'span'), `${WINDOW_S / 60} min ago`);
    setText(made(card.axis, 'span'), 'now');
  }
  const clock = (at) => new Date(at * 1000).toLocaleTimeString('en-GB');
  card.points = points.map((one) =>
    ({ x: one.x / WINDOW_S, text: `${clock(one.at)}   ${card.format(one.value)}` }));
  return points.map((one) => ({ ...one, y: 100 - 100 * (one.value / top) }));
}

function line(card, samples) {
  const [area, path] = card.paths;
  let runs = [];
  for (const one of framed(card, samples)) {
    const run = runs.at(-1);
    if (run && one.x - run.at(-1).x <= GAP_S) run.push(one);
    else runs.push([one]);
  }
  const along = (run) => run.map((one) => `${one.x.toFixed(2)} ${one.y.toFixed(2)}`).join('L');
  path.setAttribute('d', runs.map((run) => `M${along(run)}`).join(''));
  area.setAttribute('d', runs.map((run) =>
    `M${run[0].x.toFixed(2)} 100L${along(run)}V100Z`).join(''));
}

function bars(card, samples) {
  const path = card.paths[3];
  const tall = framed(card, samples).filter((one) => one.value > 0);
  path.setAttribute('d', tall.map((one) =>
    `M${(one.x - 0.9).toFixed(2)} 100V${one.y.toFixed(2)}h1.2V100Z`).join(''));
}

const isLate = (bounds, at) => at >= 0 && at < bounds.length && bounds[at] < 0;

/** What a class of slack holds, in words. */
function slackClass(bounds, at) {
  if (at === 0) return `${bound(bounds[0])} or less`;
  if (at === bounds.length) return `over ${bound(bounds.at(-1))}`;
  // What is a millisecond late is late; the class above begins with nothing.
  const [from, to] = [bounds[at - 1], bounds[at]].map((one) => (one === -1 ? 0 : one));
  const unit = (text) => text.split(' ')[1];
  const [first, last] = [bound(from), bound(to)];
  return unit(first) === unit(last) ? `${first.split(' ')[0]} to ${last}` : `${first} to ${last}`;
}

function slackBars(card, samples) {
  const { counts, bounds, periods } = recentSlack(samples);
  const width = WINDOW_S / counts.length;
  const most = roundedUp(Math.max(card.least, ...counts));
  const bar = (one, at) => (one === 0 ? '' : `M${(at * width + width * 0.12).toFixed(2)} 100`
    + `V${(100 - Math.max(1, 100 * (one / most))).toFixed(2)}h${(width * 0.76).toFixed(2)}V100Z`);
  const drawn = (late) => counts.map((one, at) =>
    (isLate(bounds, at) === late ? bar(one, at) : '')).join('');
  card.paths[2].setAttribute('d', drawn(false));
  card.paths[3].setAttribute('d', drawn(true));
  setScale(card, most);
  card.points = counts.map((one, at) => {
    const share = periods > 0 ? `, ${percent(one / periods)}` : '';
    const text = `${slackClass(bounds, at)}: ${plural(one, 'period')}${share}`;
    return { x: (at + 0.5) / counts.length, text };
  });
  if (card.axis.children.length > 0) return;
  bounds.forEach((one, at) => {
    // There is no room for all; the end of what is late is one of them.
    if (at % 2 === 0) return;
    const label = made(card.axis, 'span', 'at');
    label.style.left = `${(100 * (at + 1)) / counts.length}%`;
    setText(label, one === -1 ? '0' : bound(one));
  });
}

// ---- streams

function fillTarget(cell, one) {
  if (cell.children.length === 0) {
    made(cell, 'span', 'target');
    made(cell, 'span', 'from');
  }
  setText(cell.children[0], one.target);
  cell.children[0].title = one.target;
  const agent = one.user_agent ? `, ${one.user_agent}` : '';
  setText(cell.children[1], `${one.peer}${agent}`);
  cell.children[1].title = cell.children[1].textContent;
}

/** A share of 0 to 1 as a bar and a figure; null is not known. */
function fillMeter(cell, share) {
  if (cell.children.length === 0) {
    made(made(cell, 'span', 'meter'), 'span');
    made(cell, 'span', 'figure');
  }
  cell.children[0].classList.toggle('unknown', (share ?? null) === null);
  cell.children[0].children[0].style.width = `${100 * Math.min(1, share ?? 0)}%`;
  setText(cell.children[1], known(share, percent));
}

const rows = new Map();

function rowOf(id) {
  const row = document.createElement('tr');
  for (const column of COLUMNS) {
    const cell = made(row, 'td');
    cell.dataset.name = column.name;
  }
  rows.set(id, row);
  return row;
}

function showSessions(found) {
  const shown = found.sessions.map((one) => {
    const row = rows.get(one.id) ?? rowOf(one.id);
    COLUMNS.forEach((column, at) => {
      const cell = row.children[at];
      if (column.fill) column.fill(cell, one);
      else setText(cell, column.text(one));
      cell.classList.toggle('bad', Boolean(column.isBad?.(one)));
    });
    return row;
  });
  const ids = new Set(found.sessions.map((one) => one.id));
  for (const id of rows.keys()) if (!ids.has(id)) rows.delete(id);
  const body = element('sessions');
  const isSame = body.children.length === shown.length
    && shown.every((row, at) => body.children[at] === row);
  if (!isSame) body.replaceChildren(...shown);
  element('none').hidden = shown.length > 0;
  document.querySelector('table').hidden = shown.length === 0;
  const risky = found.sessions.filter((one) => one.rebuffer_risk >= RISK_SHOWN).length;
  const all = found.sessions_count;
  const part = all > shown.length ? `${count(shown.length)} of ${count(all)}, ` : '';
  const looked = all > found.looked_at ? ` of ${count(found.looked_at)} that were looked at` : '';
  setText(element('shown'), shown.length === 0 ? ''
    : `${part}riskiest first${looked}; ${risky === 0 ? 'none is' : risky === 1 ? '1 is' : `${count(risky)} are`} `
      + `likely to run dry (${percent(RISK_SHOWN)} or more)`);
}

let isAsking = false;

async function askSessions() {
  if (isAsking || document.hidden) return;
  isAsking = true;
  try {
    const answer = await fetch(`api/sessions?limit=${SESSIONS_SHOWN}`);
    if (answer.ok) showSessions(await answer.json());
  } catch {
    // The events tell that the server is gone.
  } finally {
    isAsking = false;
  }
}

// ---- what comes in

let samples = [];
let heardAt = 0;
let taken = 0;

function show() {
  const last = samples.at(-1);
  for (const card of CARDS) {
    card.draw(card, samples);
    const value = card.headline ? card.headline(samples)
      : known(card.of(last), card.format);
    setText(card.value, value);
    card.value.classList.toggle('bad', Boolean(card.isBad?.(samples)));
    setText(card.words, card.note(last, samples));
    card.words.title = card.words.textContent;
    card.svg.setAttribute('aria-label', `${card.title}: ${value}`);
    point(card);
  }
  setText(element('about'), `${location.host}, up ${duration(last.up_s)}`);
  const missing = last.loops_missing;
  element('banner').hidden = missing === 0;
  if (missing > 0) {
    setText(element('banner'), `${missing} of ${plural(last.loops, 'event loop')} did not answer: `
      + 'figures of streams stand still meanwhile.');
  }
}

function take(added) {
  heardAt = Date.now();
  const newest = added.at(-1)?.time_s ?? 0;
  samples = [...samples, ...added].filter((one) => one.time_s >= newest - WINDOW_S);
  for (const one of added) one.recent_bits_per_s = recentRate(one);
  if (samples.length === 0) return;
  tell('live', 'Live');
  show();
  if (taken % SESSIONS_EVERY === 0) askSessions();
  taken += 1;
}

function tell(state, words) {
  setText(element('state'), words);
  element('state').dataset.state = state;
  document.body.dataset.state = state;
}

let events = null;

function connect() {
  events = new EventSource('api/events');
  events.addEventListener('history', (event) => {
    samples = [];
    taken = 0;
    take(JSON.parse(event.data));
  });
  events.addEventListener('sample', (event) => take([JSON.parse(event.data)]));
  events.addEventListener('end', () => again('The server ended; reconnecting'));
  events.addEventListener('error', () => again('Connection lost; reconnecting'));
}

function again(words) {
  events.close();
  heardAt = 0;
  tell('lost', words);
  setTimeout(connect, RETRY_MS);
}

// A connection that is cut without a word is not seen by the browser for minutes.
setInterval(() => {
  if (heardAt > 0 && Date.now() - heardAt > SILENCE_MS) again('No answer; reconnecting');
}, 1000);

CARDS.forEach(madeCard);
for (const column of COLUMNS) {
  const head = made(element('columns'), 'th');
  setText(head, column.name);
  head.title = column.about ?? '';
}
askSessions();
connect();
