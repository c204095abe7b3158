
'use strict';
/* The page talks to the server that it comes from, by relative addresses, so that it works behind
 * --root-path too. What a model or a server says goes into the document as text, never as HTML. */

const $ = (id) => document.getElementById(id);
const KEY = 'inferd-key';
const POLL_MS = 2000;
const USAGE_MS = 30000;
const SAMPLES = 60;
const ALTERNATIVES = 5;
const SCHEMA = { type: 'object', properties: { name: { type: 'string', maxLength: 40 }, age: { type: 'integer', minimum: 0, maximum: 120 } },
  required: ['name', 'age'], additionalProperties: false };
const TOOLS = [{ type: 'function', function: { name: 'get_weather', description: 'Weather of a city', parameters: { type: 'object',
  properties: { city: { type: 'string' } }, required: ['city'], additionalProperties: false } } }];
/* name, label, least, most, step of the arrows; integers have a step of 1 */
const FIELDS = [
@sampling
  ['top_k', 'Top k', 0, 1e9, 1], ['max_tokens', 'Most tokens', 1, 1e9, 1],
  ['seed', 'Seed', 0, 2 ** 53 - 1, 1]];
const CHIPS = [
  ['Tell a short story', () => 'Tell me a short story.'],
  ['Add two numbers', () => 'What is 2 plus 3?'],
  ['Answer as JSON', () => { fill('schema', SCHEMA); return 'Make up a person.'; }],
  ['Call a tool', () => { fill('tools', TOOLS); return 'What is the weather in Paris?'; }]];

let model = '';
let running = null; // AbortController of the request in flight
const messages = []; // the conversation, as the API takes it
const pictures = []; // of the message that is being written, as data: URLs

function el(tag, properties, ...children) {
  const node = Object.assign(document.createElement(tag), properties);
  node.append(...children);
  return node;
}

/* ---- the server ---- */

/* What the server, or this page in its place, says about a request that failed. */
class Refusal extends Error {
  constructor(message, detail = '', status = 0) {
    super(message);
    Object.assign(this, { detail, status });
  }
}

async function refusalOf(response) {
  const text = await response.text();
  try {
    const { error } = JSON.parse(text);
    return new Refusal(error.message, [response.status, error.code].filter(Boolean).join(' '), response.status);
  } catch {
    return new Refusal(text.slice(0, 300) || response.statusText || 'No reason was given.', String(response.status), response.status);
  }
}

async function ask(path, options = {}) {
  const key = sessionStorage.getItem(KEY);
  const headers = { ...options.headers };
  if (key) headers.Authorization = `Bearer ${key}`;
  let response;
  try {
    response = await fetch(path, { ...options, headers });
  } catch (fault) {
    if (fault.name === 'AbortError') throw fault;
    throw new Refusal('The server does not answer.', 'Is it running? The page tries again by itself.');
  }
  if (!response.ok) throw await refusalOf(response);
  return response;
}

/* Sends a request whose answer is a stream; calls `take` for each event. */
async function stream(path, body, signal, take) {
  const response = await ask(path, { method: 'POST', body: JSON.stringify(body), signal, headers: { 'Content-Type': 'application/json' } });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    let piece;
    try {
      piece = await reader.read();
    } catch (fault) {
      if (fault.name === 'AbortError') throw fault;
      piece = { done: true };
    }
    if (piece.done) throw new Refusal('The answer was cut: the connection ended before it did.');
    const lines = (rest + piece.value).split('\n');
    rest = lines.pop();
    for (const line of lines) {
      if (!line.startsWith('data: ')) continue;
      if (line === 'data: [DONE]') return;
      const event = JSON.parse(line.slice(6));
      if (event.error) throw new Refusal(event.error.message, event.error.code || '');
      take(event);
    }
  }
}

/* Runs one request: the buttons and the key Esc stop it. Returns what ended it. */
async function run(path, body, take, failed) {
  const begin = performance.now();
  let first = 0;
  let usage = null;
  let reason = '';
  running = new AbortController();
  showRunning();
  try {
    await stream(path, body, running.signal, (event) => {
      usage = event.usage || usage;
      const choice = event.choices && event.choices[0];
      if (!choice) return;
      first = first || performance.now();
      reason = choice.finish_reason || reason;
      paint(() => take(choice));
    });
    flush();
  } catch (fault) {
    flush();
    reason = fault.name === 'AbortError' ? 'stopped' : 'failed';
    if (reason === 'failed') failed(fault);
    if (fault.status === 401) askForKey(fault.message);
  }
  running = null;
  showRunning();
  const words = [];
  const ms = performance.now() - first;
  if (usage) {
    words.push(`${count(usage.prompt_tokens)} + ${count(usage.completion_tokens)} tokens`);
    // Of fewer ms the browser has seen one piece, whatever the model did.
    if (usage.completion_tokens > 1 && ms >= 100) words.push(`${rate((usage.completion_tokens - 1) * 1000 / ms)} tokens/s`);
  }
  if (first) words.push(`first after ${Math.round(first - begin)} ms`);
  if (reason && reason !== 'stop') words.push(reason === 'length' ? 'ended at the most tokens' : reason.replace('_', ' '));
  return { reason, words: words.join(' · ') };
}

/* A fast model writes more tokens than a screen shows frames: what came since the last frame is
 * put into the page at once. */
const changes = [];
let frame = 0;

function paint(change) {
  changes.push(change);
  frame = frame || requestAnimationFrame(flush);
}

function flush() {
  cancelAnimationFrame(frame);
  frame = 0;
  for (const change of changes.splice(0)) change();
  follow();
}

/* Appends text to what an element shows, in the same node. */
function write(node, text) {
  if (node.lastChild) node.lastChild.appendData(text);
  else node.append(text);
}

function showRunning() {
  for (const [id, word] of [['chat-send', 'Send'], ['text-send', 'Continue']]) $(id).textContent = running ? 'Stop' : word;
  document.body.dataset.running = running ? 'yes' : 'no';
}

function errorBox(fault) {
  return el('div', { className: 'error', role: 'alert' }, fault.message, ...(fault.detail ? [el('small', {}, fault.detail)] : []));
}

const count = (n) => n.toLocaleString('en');
const rate = (n) => (n >= 100 ? count(Math.round(n)) : n.toFixed(1));
const bytes = (n) => (n >= 2 ** 30 ? `${(n / 2 ** 30).toFixed(1)} GiB` : `${Math.round(n / 2 ** 20)} MiB`);

/* ---- settings ---- */

function makeFields() {
  for (const [name, label, min, max, step] of FIELDS) {
    const input = el('input', { type: 'number', id: `f-${name}`, min, max, step, placeholder: 'default', inputMode: 'decimal' });
    input.addEventListener('input', () => sampling());
    $('fields').append(el('label', {}, label, input, el('small')));
  }
}

/* The fields that are filled in; null when one is out of its bounds, which is said beside it. */
function sampling() {
  const body = {};
  let good = true;
  for (const [name, , min, max, step] of FIELDS) {
    const input = $(`f-${name}`);
    const value = input.valueAsNumber;
    const empty = input.value === '' && !input.validity.badInput;
    const whole = step !== 1 || Number.isInteger(value);
    const fits = empty || (value >= min && value <= max && whole);
    const kind = step === 1 ? 'a whole number ' : '';
    input.nextSibling.textContent = fits ? '' : kind + (max >= 1e9 ? `from ${min}` : `${min} to ${max}`);
    input.setAttribute('aria-invalid', String(!fits));
    good = good && fits;
    if (!empty) body[name] = value;
  }
  const stop = $('stop').value.split('\n').filter(Boolean);
  if (stop.length > 0) body.stop = stop;
  return good ? body : null;
}

/* The JSON of a field: undefined when it is empty, null when it is wrong, which is said below it. */
function jsonOf(id, kind, right) {
  const text = $(id).value.trim();
  let value;
  let said = '';
  try {
    if (text) value = JSON.parse(text);
    if (text && !right(value)) said = `This is not ${kind}.`;
  } catch (fault) {
    said = `Not JSON: ${fault.message}`;
  }
  $(`${id}-said`).textContent = said;
  $(`${id}-said`).classList.toggle('bad', Boolean(said));
  $(id).setAttribute('aria-invalid', String(Boolean(said)));
  return said ? null : value;
}
const schemaOf = () => jsonOf('schema', 'a schema: an object', (v) => v && typeof v === 'object' && !Array.isArray(v));
const toolsOf = () => jsonOf('tools', 'an array of functions', Array.isArray);

function fill(id, value) {
  $(id).value = JSON.stringify(value, null, 1);
  $(`${id}-box`).open = true;
  showPills();
}

/* Above the buttons: what this answer is bound to, each with a way out. */
function showPills() {
  const pills = pictures.map((src, index) => {
    const pill = el('button', { type: 'button', className: 'pill' }, el('img', { src, alt: '' }), el('span', { ariaHidden: 'true' }, '×'));
    pill.setAttribute('aria-label', `Remove: picture ${index + 1}`);
    pill.onclick = () => { pictures.splice(index, 1); showPills(); $('chat-input').focus(); };
    return pill;
  });
  for (const [id, word, read] of [['schema', 'JSON schema', schemaOf], ['tools', 'Tools', toolsOf]]) {
    if (read() === undefined) continue;
    const pill = el('button', { type: 'button', className: 'pill' }, word, el('span', { ariaHidden: 'true' }, '×'));
    pill.setAttribute('aria-label', `Remove: ${word}`);
    pill.onclick = () => { $(id).value = ''; showPills(); $('chat-input').focus(); };
    pills.push(pill);
  }
  $('pills').replaceChildren(...pills);
}

/* Shows the first field that is wrong. */
function complain() {
  setSide(true);
  const bad = document.querySelector('aside [aria-invalid=true]');
  const box = bad && bad.closest('details');
  if (box) box.open = true;
  if (bad) bad.focus();
  return null;
}

function chatBody(text) {
  const options = sampling();
  const schema = schemaOf();
  const tools = toolsOf();
  if (!options || schema === null || tools === null) return complain();
  const system = $('system').value.trim();
  const body = { model: model || undefined, messages: [...messages], stream: true, stream_options: { include_usage: true }, ...options };
  if (system) body.messages.unshift({ role: 'system', content: system });
  if (text || pictures.length > 0) body.messages.push({ role: 'user', content: contentOf(text) });
  if (schema) body.response_format = { type: 'json_schema', json_schema: { name: 'answer', schema } };
  if (tools && tools.length > 0) Object.assign(body, { tools, tool_choice: $('tool-choice').value });
  return body;
}

function textBody() {
  const options = sampling();
  if (!options) return complain();
  return { model: model || undefined, prompt: $('text-input').value, max_tokens: 128, logprobs: ALTERNATIVES, stream: true, stream_options: { include_usage: true }, ...options };
}

/* ---- chat ---- */

/* An answer, on the page and as the message that it becomes. */
class Answer {
  constructor() {
    this.content = this.reasoning = '';
    this.calls = [];
    this.wait = el('span', { className: 'wait' }, 'Thinking …');
    this.text = el('div', { className: 'text' });
    this.foot = el('div', { className: 'foot' });
    this.node = el('div', { className: 'turn assistant live' }, this.wait, this.text, this.foot);
    this.node.setAttribute('aria-busy', 'true');
    $('log').append(this.node);
    follow(true);
  }

  take({ delta = {} }) {
    const thought = delta.reasoning || delta.reasoning_content;
    if (thought) this.think(thought);
    if (delta.content) {
      this.content += delta.content;
      write(this.text, delta.content);
    }
    for (const part of delta.tool_calls || []) this.call(part);
    if (thought || delta.content || delta.tool_calls) this.wait.remove();
  }

  think(piece) {
    if (!this.thought) {
      this.thought = el('div');
      this.text.before(el('details', { className: 'reasoning' }, el('summary', {}, 'Reasoning'), this.thought));
    }
    this.reasoning += piece;
    write(this.thought, piece);
  }

  call(part) {
    let call = this.calls[part.index];
    if (!call) {
      call = this.calls[part.index] = { id: '', name: '', arguments: '', title: el('div'), body: el('pre') };
      call.node = el('div', { className: 'call' }, call.title, call.body);
      this.foot.before(call.node);
    }
    const { name = '', arguments: text = '' } = part.function || {};
    call.id = part.id || call.id;
    call.name += name;
    call.arguments += text;
    call.title.textContent = call.name;
    write(call.body, text);
  }

  message() {
    const message = { role: 'assistant', content: this.content };
    const calls = this.calls.filter(Boolean);
    if (calls.length > 0) {
      message.tool_calls = calls.map((call) => ({ id: call.id, type: 'function', function: { name: call.name, arguments: call.arguments } }));
    }
    return message;
  }

  fail(fault) {
    this.foot.before(errorBox(fault));
  }

  end({ reason, words }) {
    this.wait.remove();
    this.node.classList.remove('live');
    this.node.setAttribute('aria-busy', 'false');
    if (reason !== 'failed' && (this.content || this.calls.length > 0 || reason === 'stop')) messages.push(this.message());
    for (const old of document.querySelectorAll('.again')) old.remove();
    const again = button(reason === 'failed' ? 'Try again' : 'Regenerate', () => regenerate(this), 'quiet again');
    this.foot.replaceChildren(el('span', { className: 'meta' }, words), again);
    if (this.content) this.foot.append(button('Copy', (event) => copy(this.content, event.target)));
    if (reason === 'tool_calls') this.askResults();
    follow();
  }

  /* The user plays the program that runs the tools. */
  askResults() {
    const inputs = this.calls.filter(Boolean).map((call) => {
      const input = el('input', { placeholder: 'what the function returns', spellcheck: false });
      call.node.append(el('label', {}, 'Result', input));
      input.addEventListener('keydown', (event) => { if (isEnter(event)) send(); });
      return [call, input];
    });
    const send = () => {
      if (running) return;
      for (const [call, input] of inputs) {
        messages.push({ role: 'tool', tool_call_id: call.id, content: input.value });
        input.disabled = true;
      }
      give.remove();
      answer();
    };
    const give = button('Send the results', send, 'quiet again');
    this.foot.append(give);
  }
}

function button(text, onclick, className = 'quiet') {
  return el('button', { type: 'button', className, onclick }, text);
}

/* Keeps the end in sight, unless the reader has scrolled away from it. */
function follow(always = false) {
  const page = document.scrollingElement;
  if (always || page.scrollHeight - page.scrollTop - page.clientHeight < 160) page.scrollTop = page.scrollHeight;
}

async function answer() {
  const body = chatBody();
  if (!body || running) return;
  const reply = new Answer();
  reply.end(await run('v1/chat/completions', body, (choice) => reply.take(choice), (fault) => reply.fail(fault)));
}

function contentOf(text) {
  if (pictures.length === 0) return text;
  const parts = pictures.map((url) => ({ type: 'image_url', image_url: { url } }));
  return text.trim() ? [...parts, { type: 'text', text }] : parts;
}

function dataUrlOf(file) {
  return new Promise((done, failed) => {
    const reader = new FileReader();
    reader.onload = () => done(reader.result);
    reader.onerror = () => failed(reader.error);
    reader.readAsDataURL(file);
  });
}

async function takePictures(files) {
  try {
    for (const file of [...files].filter(({ type }) => type.startsWith('image/'))) pictures.push(await dataUrlOf(file));
  } catch (fault) {
    notice(`The picture cannot be read: ${fault.message}`);
  }
  showPills();
  $('chat-input').focus();
}

function say(text) {
  if (running || !(text.trim() || pictures.length > 0) || !chatBody(text)) return false;
  $('welcome').hidden = true;
  messages.push({ role: 'user', content: contentOf(text) });
  const shown = pictures.map((src, index) => el('img', { src, alt: `Picture ${index + 1}` }));
  $('log').append(el('div', { className: 'turn user' }, el('div', {}, ...shown, text)));
  pictures.length = 0;
  showPills();
  answer();
  return true;
}

function regenerate(reply) {
  if (running) return;
  while (messages.length > 0 && ['assistant', 'tool'].includes(messages.at(-1).role)) {
    const { role } = messages.pop();
    if (role === 'assistant') break;
  }
  reply.node.remove();
  answer();
}

function clearChat() {
  if (running) running.abort();
  messages.length = pictures.length = 0;
  showPills();
  $('log').replaceChildren();
  $('welcome').hidden = false;
  $('chat-input').focus();
}

/* ---- completion ---- */

const tokens = []; // {text, logprob, top}

async function complete() {
  const body = textBody();
  if (!body || running) return;
  tokens.length = 0;
  hideTip();
  $('text-result').hidden = false;
  $('text-error').replaceChildren();
  $('text-meta').textContent = '';
  $('tokens').replaceChildren(el('span', { className: 'given' }, body.prompt));
  const { words } = await run('v1/completions', body, addTokens, (fault) => $('text-error').append(errorBox(fault)));
  $('text-meta').textContent = words;
}

function addTokens({ text, logprobs, finish_reason: reason }) {
  if (!logprobs) return $('tokens').append(text || '');
  for (let i = 0; i < logprobs.tokens.length; i++) {
    const token = { text: logprobs.tokens[i], logprob: logprobs.token_logprobs[i], top: logprobs.top_logprobs ? logprobs.top_logprobs[i] : {} };
    const p = Math.exp(token.logprob);
    const span = el('span', { tabIndex: tokens.length === 0 ? 0 : -1, textContent: token.text, className: !text && reason === 'stop' ? 'end' : '' });
    span.style.setProperty('--p', p.toFixed(3));
    span.dataset.at = tokens.length;
    span.setAttribute('role', 'button');
    span.setAttribute('aria-label', `${visible(token.text)}, ${percent(p)}`);
    tokens.push(token);
    $('tokens').append(span);
  }
}

const percent = (p) => (p < 0.001 ? '< 0.1 %' : `${(p * 100).toFixed(p < 0.1 ? 1 : 0)} %`);
const visible = (text) => text.replace(/ /g, '·').replace(/\n/g, '⏎').replace(/\t/g, '⇥') || '(nothing)';

function showTip(span) {
  const token = tokens[span.dataset.at];
  const rows = new Map(Object.entries(token.top || {}));
  rows.set(token.text, token.logprob);
  const sorted = [...rows].sort((a, b) => b[1] - a[1]);
  $('tip').replaceChildren(...sorted.map(([text, logprob]) => {
    const p = Math.exp(logprob);
    return el('div', { className: text === token.text ? 'chosen' : '' }, el('code', {}, visible(text)), el('progress', { max: 1, value: p }), el('b', {}, percent(p)));
  }));
  const box = span.getClientRects()[0];
  const tip = $('tip');
  tip.hidden = false;
  const below = box.bottom + 8 + tip.offsetHeight < innerHeight;
  tip.style.left = `${Math.max(8, Math.min(box.left, innerWidth - tip.offsetWidth - 8))}px`;
  tip.style.top = `${below ? box.bottom + 8 : box.top - 8 - tip.offsetHeight}px`;
  span.setAttribute('aria-describedby', 'tip');
}

function hideTip() {
  $('tip').hidden = true;
}

function moveToken(event) {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  const from = event.target.closest('[data-at]');
  if (!step || !from) return;
  const to = $('tokens').querySelector(`[data-at="${Number(from.dataset.at) + step}"]`);
  if (!to) return;
  event.preventDefault();
  from.tabIndex = -1;
  to.tabIndex = 0;
  to.focus();
}

/* ---- the clipboard ---- */

async function copy(text, from) {
  const was = from.textContent;
  try {
    await navigator.clipboard.writeText(text);
  } catch { // a page that came over plain HTTP from another machine has no clipboard
    const area = el('textarea', { value: text, className: 'hidden' });
    document.body.append(area);
    area.select();
    document.execCommand('copy');
    area.remove();
  }
  from.textContent = 'Copied';
  setTimeout(() => { from.textContent = was; }, 1200);
}

function curlOf(path, body) {
  const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;
  const key = sessionStorage.getItem(KEY) ? ' \\\n  -H "Authorization: Bearer $INFERD_API_KEY"' : '';
  return `curl -N ${quoted(new URL(path, location.href).href)} \\\n  -H 'Content-Type: application/json'${key} \\\n  -d ${quoted(JSON.stringify(body))}`;
}

/* ---- the key ---- */

function askForKey(said = '') {
  if (said) $('key-said').textContent = said;
  $('key-said').classList.toggle('bad', Boolean(said));
  if (!$('key-dialog').open) $('key-dialog').showModal();
  $('key').value = sessionStorage.getItem(KEY) || '';
  $('key').select();
}

async function useKey() {
  sessionStorage.setItem(KEY, $('key').value.trim());
  if (!$('key').value.trim()) sessionStorage.removeItem(KEY);
  keyRefused = false;
  if (await loadModels()) $('key-dialog').close();
}

let keyRefused = false;
let loading = null;

/* Returns true when the server has told its models; asks for a key when it wants one. */
function loadModels() {
  loading = loading || readModels().finally(() => { loading = null; });
  return loading;
}

async function readModels() {
  try {
    const { data } = await (await ask('v1/models')).json();
    const same = [...$('model').options].map(({ value }) => value).join('\n') === data.map(({ id }) => id).join('\n');
    if (!same) $('model').replaceChildren(...data.map(({ id }) => el('option', { value: id }, id)));
    $('model').disabled = data.length < 2;
    if (!data.some(({ id }) => id === model)) model = data[0].id;
    $('model').value = model;
    document.title = `${model} · inferd`;
    context = data[0].max_model_len;
    showModels(data);
    return true;
  } catch (fault) {
    if (fault.status === 401 && !keyRefused) {
      keyRefused = true;
      askForKey(fault.message);
    }
    return false;
  }
}

/* ---- several models ---- */

/* A line for each; an alias or an adapter has none. What changes little keeps its node, and so the focus. */
function showModels(cards) {
  const rows = cards.filter(({ id, root, parent, state }) => state && id === root && !parent);
  const body = $('models').querySelector('tbody');
  several = rows.length > 0;
  $('models').hidden = !several;
  while (body.rows.length > rows.length) body.lastChild.remove();
  for (const [at, { id, state, progress, reason, memory }] of rows.entries()) {
    const row = body.rows[at] || body.appendChild(el('tr', {}, el('td'), el('td'), el('td'), el('td', {}, button('', loadOrUnload))));
    const [name, shown, size, act] = row.cells;
    const there = state === 'ready' || state === 'loading';
    row.dataset.state = state;
    name.textContent = id;
    shown.textContent = state === 'loading' ? `loading ${Math.round(progress * 100)} %` : state;
    shown.title = reason || '';
    size.textContent = bytes(memory.host + memory.device);
    act.firstChild.dataset.model = id;
    act.firstChild.textContent = there ? 'Unload' : 'Load';
    act.firstChild.setAttribute('aria-label', `${there ? 'Unload' : 'Load'} ${id}`);
  }
}

async function loadOrUnload({ target }) {
  const verb = target.textContent.toLowerCase();
  target.disabled = true;
  $('models-said').textContent = '';
  try {
    await ask(`v1/models/${verb}`, { method: 'POST', body: JSON.stringify({ model: target.dataset.model }), headers: { 'Content-Type': 'application/json' } });
    await readModels();
  } catch (fault) { // most often the key is not an admin key
    $('models-said').textContent = fault.message;
    if (fault.status === 401) askForKey(fault.message);
  }
  target.disabled = false;
}

/* ---- the state of the server ---- */

let context = 0;
let several = false; // models
let polling = false;
let known = false; // the models of this server
let last = null; // {at, generated, prompt}
const rates = new Array(SAMPLES).fill(0);

function setState(state, text) {
  $('status').dataset.state = state;
  $('status').textContent = text;
  $('loading').hidden = state !== 'loading';
}

function notice(text) {
  $('notice').hidden = !text;
  if ($('notice').textContent !== text) $('notice').textContent = text;
}

async function poll() {
  if (polling || document.hidden) return;
  polling = true;
  try {
    await pollReady();
    await pollMetrics();
  } catch {
    setState('lost', 'no answer');
    notice('The server does not answer. The page tries again every 2 seconds.');
    known = false;
    last = null;
  }
  polling = false;
}

async function pollReady() {
  const response = await fetch('readyz', { signal: AbortSignal.timeout(5000), cache: 'no-store' });
  const { status, progress = 0, eta_s: eta } = await response.json().catch(() => ({ status: `status ${response.status}` }));
  if (response.ok) {
    setState('ready', 'ready');
    notice('');
    if (!known || several) known = (await loadModels()) || keyRefused; // a refused key is not sent again
    return;
  }
  setState(status, status);
  known = false;
  if (status === 'loading') {
    $('load-bar').value = progress;
    $('load-text').textContent = `Loading the model, ${Math.round(progress * 100)} %${eta ? `, about ${count(eta)} s more` : ''}`;
    notice('');
  } else {
    notice(status === 'failed' ? 'The engine has failed. The log of the server says why.' : `The server is ${status}: it takes no new requests.`);
  }
}

/* {name: sum of its samples}, and the labels of inferd_cache_config_info */
function readMetrics(text) {
  const sums = {};
  let labels = '';
  for (const line of text.split('\n')) {
    const found = /^([\w:]+)(?:\{(.*)\})? (\S+)/.exec(line);
    if (!found) continue;
    const name = found[1].replace(/^(inferd_requests_|vllm:num_requests_)/, '').replace(/^(inferd_|vllm:)/, '');
    const family = found[1].startsWith('vllm:') ? 'vllm' : 'inferd';
    sums[family] = sums[family] || {};
    const of = /(?:state|kind)="(\w+)"/.exec(found[2] || '');
    const whole = { running: 'running', waiting: 'waiting', prompt: 'prompt_tokens_total', generated: 'generation_tokens_total' };
    const sum = /^model_(requests|tokens_total)$/.test(name) && of ? whole[of[1]] : name;
    sums[family][sum] = (sums[family][sum] || 0) + Number(found[3]);
    if (name === 'cache_config_info' && found[2].includes('kv_cache_size_tokens')) labels = found[2];
    if (found[1] === 'process_resident_memory_bytes') sums.resident = Number(found[3]);
  }
  return { ...sums.vllm, ...sums.inferd, resident: sums.resident, labels };
}

async function pollMetrics() {
  let response;
  try {
    response = await ask('metrics', { signal: AbortSignal.timeout(5000) });
  } catch (fault) {
    if (fault instanceof Refusal && fault.status) {
      $('s-more').textContent = `No figures: ${fault.message}`;
      return;
    }
    throw fault;
  }
  showMetrics(readMetrics(await response.text()));
}

function showMetrics(m) {
  const now = { at: performance.now(), generated: m.generation_tokens_total, prompt: m.prompt_tokens_total };
  const perSecond = (key) => (last ? Math.max(0, (now[key] - last[key]) / (now.at - last.at) * 1000) : NaN);
  const show = (id, value, format) => { $(id).textContent = Number.isFinite(value) ? format(value) : '–'; };
  const usage = m.kv_cache_usage_ratio ?? m.kv_cache_usage_perc;
  show('s-running', m.running, count);
  show('s-waiting', m.waiting, count);
  show('s-rate', perSecond('generated'), rate);
  show('s-prompt', perSecond('prompt'), rate);
  show('s-kv', usage, (v) => `${(v * 100).toFixed(1)} %`);
  $('kv-bar').value = usage || 0;
  if (last) {
    rates.shift();
    rates.push(perSecond('generated'));
  }
  last = now;
  const top = Math.max(1, ...rates);
  $('spark').firstElementChild.setAttribute('points', rates.map((v, i) => `${i * 120 / (SAMPLES - 1)},${27 - v / top * 26}`).join(' '));
  const capacity = /kv_cache_size_tokens="(\d+)"/.exec(m.labels);
  $('s-more').textContent = [capacity && `${count(Number(capacity[1]))} tokens of KV cache`, context && `context ${count(context)}`,
    m.resident && `${bytes(m.resident)} of memory`].filter(Boolean).join(' · ');
}

/* What keys have used: all keys for an admin key, else the own one. */
async function readUsage() {
  let said = 'Nothing yet.';
  let rows = [];
  try {
    const { data } = await (await ask('v1/usage?group_by=model,api_key_id')).json();
    rows = data.reverse().flatMap(({ start_time: day, results }) => results.map((used) => [
      new Date(day * 1000).toISOString().slice(5, 10), [used.model, used.api_key_name].filter(Boolean).join(' · '),
      ...[used.num_model_requests, used.input_tokens, used.output_tokens].map(count)]));
  } catch (fault) {
    said = fault.message;
  }
  $('usage').lastElementChild.replaceChildren(...rows.map((row) => el('tr', {}, ...row.map((text) => el('td', {}, text)))));
  $('usage').hidden = rows.length === 0;
  $('usage-said').textContent = rows.length > 0 ? '' : said;
}

/* ---- the page ---- */

const isEnter = (event) => event.key === 'Enter' && !event.shiftKey && !event.isComposing;

function grow(area) {
  area.style.height = 'auto';
  area.style.height = `${area.scrollHeight}px`;
}

function setSide(open) {
  $('side').classList.toggle('open', open);
  $('side-open').setAttribute('aria-expanded', String(open));
}

function setTab(name) {
  for (const tab of ['chat', 'completion']) {
    const on = tab === name;
    $(tab).hidden = !on;
    $(`tab-${tab}`).setAttribute('aria-selected', String(on));
    $(`tab-${tab}`).tabIndex = on ? 0 : -1;
  }
  document.querySelector('.chat-only').hidden = name !== 'chat';
  hideTip();
}

function wireForms() {
  for (const [form, area, act] of [
    ['chat-form', 'chat-input', () => { if (say($('chat-input').value)) $('chat-input').value = ''; grow($('chat-input')); }],
    ['text-form', 'text-input', complete]]) {
    $(form).addEventListener('submit', (event) => {
      event.preventDefault();
      if (running) running.abort();
      else act();
    });
    $(area).addEventListener('input', () => grow($(area)));
    $(area).addEventListener('keydown', (event) => {
      if (!isEnter(event)) return;
      event.preventDefault();
      if (!running) act();
    });
  }
  $('chat-clear').onclick = clearChat;
  $('chat-curl').onclick = (event) => {
    const body = chatBody($('chat-input').value);
    if (body) copy(curlOf('v1/chat/completions', body), event.target);
  };
  $('text-curl').onclick = (event) => {
    const body = textBody();
    if (body) copy(curlOf('v1/completions', body), event.target);
  };
}

/* Files that are chosen, dropped or pasted; text that comes with them goes before. */
function wirePictures() {
  const file = $('picture-file');
  $('picture-add').onclick = () => file.click();
  file.onchange = async () => { await takePictures(file.files); file.value = ''; };
  $('chat').addEventListener('dragover', (event) => { if (event.dataTransfer.types.includes('Files')) event.preventDefault(); });
  $('chat').addEventListener('drop', (event) => {
    if (event.dataTransfer.files.length === 0) return;
    event.preventDefault();
    takePictures(event.dataTransfer.files);
  });
  $('chat-input').addEventListener('paste', (event) => {
    const { files } = event.clipboardData;
    if (files.length === 0 || event.clipboardData.getData('text')) return;
    event.preventDefault();
    takePictures(files);
  });
}

function wireSettings() {
  for (const id of ['schema', 'tools']) $(id).addEventListener('input', showPills);
  $('schema-example').onclick = () => fill('schema', SCHEMA);
  $('tools-example').onclick = () => fill('tools', TOOLS);
  $('reset').onclick = () => {
    for (const [name] of FIELDS) $(`f-${name}`).value = '';
    $('stop').value = '';
    sampling();
  };
  $('stop').addEventListener('input', () => grow($('stop')));
  $('model').onchange = () => { model = $('model').value; };
  $('key-open').onclick = () => askForKey();
  $('key-cancel').onclick = () => $('key-dialog').close();
  $('key-form').addEventListener('submit', (event) => { event.preventDefault(); useKey(); });
  $('side-open').onclick = () => setSide(!$('side').classList.contains('open'));
}

function wireTokens() {
  const box = $('tokens');
  const show = (event) => {
    const span = event.target.closest('[data-at]');
    if (span) showTip(span);
  };
  box.addEventListener('pointerover', show);
  box.addEventListener('focusin', show);
  box.addEventListener('pointerleave', hideTip);
  box.addEventListener('focusout', hideTip);
  box.addEventListener('keydown', moveToken);
}

function wireTabs() {
  for (const [name, other] of [['chat', 'completion'], ['completion', 'chat']]) {
    $(`tab-${name}`).onclick = () => setTab(name);
    $(`tab-${name}`).addEventListener('keydown', (event) => {
      if (event.key !== 'ArrowLeft' && event.key !== 'ArrowRight') return;
      setTab(other);
      $(`tab-${other}`).focus();
    });
  }
}

function wireUsage() {
  $('usage-box').addEventListener('toggle', () => { if ($('usage-box').open) readUsage(); });
  setInterval(() => { if ($('usage-box').open && !document.hidden) readUsage(); }, USAGE_MS);
}

makeFields();
$('chips').append(...CHIPS.map(([word, text]) => button(word, () => say(text()), '')));
wireForms();
wirePictures();
wireSettings();
wireTokens();
wireTabs();
wireUsage();
document.addEventListener('keydown', (event) => {
  if (event.key !== 'Escape') return;
  hideTip();
  if (running) running.abort();
});
document.addEventListener('visibilitychange', poll);
addEventListener('scroll', hideTip, { passive: true });
setInterval(poll, POLL_MS);
poll();
if (matchMedia('(min-width: 701px)').matches) $('chat-input').focus();
