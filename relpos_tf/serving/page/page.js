// The page of relpos-serve: a text, its translations by one model or two,
// alternatives with scores, and attention.
"use strict";

const PAUSE_MS = 180; // after the last key, before a request
const MOST_REMEMBERED = 400; // translated lines of a column
const MOST_ALTERNATIVES = 8;
const MOST_TRIES = 5; // where the server is busy
const LONG = "Longer than any sentence that the model was trained with.";

const $ = (selector, root = document) => root.querySelector(selector);
const source = $("#source");

function make(name, properties = {}, ...children) {
  const element = Object.assign(document.createElement(name), properties);
  element.append(...children);
  return element;
}

function sleep(ms, signal) {
  return new Promise((resolve, reject) => {
    signal.throwIfAborted();
    const timer = setTimeout(resolve, ms);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(signal.reason);
    });
  });
}

// Sends JSON, and again where the server is too busy.
async function ask(content, signal) {
  for (let tries = 1; ; tries++) {
    const response = await fetch("translate", {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(content),
      signal,
    }).catch((error) => {
      signal.throwIfAborted();
      throw new Error("The server does not answer.", { cause: error });
    });
    const answer = await response.json().catch(() => ({}));
    signal.throwIfAborted(); // the text has changed meanwhile
    if (response.ok) return answer.translations;
    const seconds = Number(response.headers.get("retry-after"));
    if (!seconds || tries === MOST_TRIES) {
      throw new Error(answer.error || `Status ${response.status}.`);
    }
    await sleep(1000 * seconds, signal);
  }
}

// Also where the page has no `navigator.clipboard`: it needs https.
function copy(text) {
  const write = (event) => {
    event.clipboardData.setData("text/plain", text);
    event.preventDefault();
  };
  document.addEventListener("copy", write, { once: true });
  return document.execCommand("copy");
}

// ------------------------------------------------------------- attention

// Returns a piece without the marks of word boundaries.
function labelOf(piece) {
  if (piece === "</s>" || piece === "<EOS>") return "end";
  return piece.replaceAll("▁", "").replace(/_$/, "") || piece;
}

// Returns the weights [T][S] of one layer and head; -1: a mean over all.
function meanOf(weights, layer, head) {
  const maps = weights
    .filter((_, i) => layer < 0 || i === layer)
    .flatMap((heads) => heads.filter((_, i) => head < 0 || i === head));
  const sum = (t, s) => maps.reduce((found, map) => found + map[t][s], 0);
  return maps[0].map((row, t) => row.map((_, s) => sum(t, s) / maps.length));
}

function percent(weight) {
  return `${Math.round(100 * weight)} %`;
}

// A table of one translation: a row for each of its pieces, a column for each
// piece of the source.
class AttentionMap {
  constructor(root) {
    this.root = root;
    this.table = $("table", root);
    this.layer = $(".layer", root);
    this.head = $(".head", root);
    for (const select of [this.layer, this.head]) {
      select.addEventListener("change", () => this.draw());
    }
    for (const name of ["pointerover", "focusin"]) {
      this.table.addEventListener(name, (event) => {
        const row = event.target.closest("tbody tr");
        if (row) this.tell(row.sectionRowIndex);
      });
    }
    this.table.addEventListener("keydown", (event) => this.walk(event));
    const map = $(".map", root);
    const sizes = new ResizeObserver(() => {
      $(".hint", root).hidden = map.scrollWidth <= map.clientWidth;
    });
    [map, this.table].forEach((element) => sizes.observe(element));
  }

  // `attention` null: nothing but a note.
  show(attention, note = "") {
    this.attention = attention;
    this.root.classList.toggle("empty", !attention);
    this.say(note);
    this.table.replaceChildren();
    if (!attention) return;
    this.fill(this.layer, "layer", attention.weights.length);
    this.fill(this.head, "head", attention.weights[0].length);
    this.draw();
  }

  fill(select, name, count) {
    if (select.length === count + 1) return;
    select.replaceChildren(new Option(`all ${name}s`, -1));
    for (let i = 0; i < count; i++) {
      select.append(new Option(`${name} ${i + 1}`, i));
    }
  }

  draw() {
    const { source, target, weights } = this.attention;
    [this.sources, this.targets] = [source, target].map((x) => x.map(labelOf));
    this.weights = meanOf(
      weights,
      Number(this.layer.value),
      Number(this.head.value),
    );
    const head = (scope, piece) => {
      const className = piece.startsWith("▁") ? "start" : ""; // of a word
      const textContent = labelOf(piece);
      return make("th", { scope, className, textContent });
    };
    const columns = source.map((piece) => head("col", piece));
    const rows = this.weights.map((row, t) => {
      const cells = row.map((weight) => {
        const cell = make("td", { title: percent(weight) });
        cell.style.setProperty("--weight", weight.toFixed(3));
        return cell;
      });
      // One row is in the order of Tab; the arrows lead to the others.
      const tabIndex = t ? -1 : 0;
      return make("tr", { tabIndex }, head("row", target[t]), ...cells);
    });
    this.table.replaceChildren(
      make("thead", {}, make("tr", {}, make("td"), ...columns)),
      make("tbody", {}, ...rows),
    );
    this.say("Point at a row to see what it attends to.");
  }

  say(text) {
    $(".caption", this.root).textContent = text;
  }

  // Says the strongest weights of a row in words.
  tell(t) {
    const strongest = this.weights[t]
      .map((weight, s) => [weight, this.sources[s]])
      .sort((a, b) => b[0] - a[0])
      .slice(0, 3)
      .filter(([weight]) => weight >= 0.05)
      .map(([weight, label]) => `${label} ${percent(weight)}`);
    const found = strongest.join(", ") || "nothing in particular";
    this.say(`${this.targets[t]} attends to ${found}`);
  }

  walk(event) {
    const row = document.activeElement;
    const to = {
      ArrowDown: row.nextElementSibling,
      ArrowUp: row.previousElementSibling,
    }[event.key];
    if (!to) return;
    event.preventDefault();
    row.tabIndex = -1;
    to.tabIndex = 0;
    to.focus();
  }
}

// --------------------------------------------------------------- a column

// The translations of one model.
class Column {
  constructor(models, first, limits) {
    this.models = models;
    this.limits = limits;
    this.root = $("#column").content.cloneNode(true).firstElementChild;
    this.select = $(".model", this.root);
    this.output = $(".translation", this.root);
    this.copy = $(".copy", this.root);
    this.copy.addEventListener("click", () => {
      const lines = [...this.output.children].map((x) => x.textContent);
      this.copy.textContent = copy(lines.join("\n")) ? "Copied" : "Not copied";
    });
    this.message = $(".message", this.root);
    this.list = $(".others ol", this.root);
    this.map = new AttentionMap($(".attention", this.root));
    // Alternatives and attention are about the sentence of the cursor.
    this.cursor = { line: 0, offset: 0 };
    this.chosen = 0; // its alternative that is shown
    this.known = new Map(); // answers by line
    this.controller = new AbortController();
    for (const { name, kind } of models) {
      const note = kind === "run" ? "" : ` (${kind})`;
      this.select.append(new Option(name + note, name));
    }
    this.select.value = first;
    this.select.addEventListener("change", () => {
      this.known.clear();
      this.update(0);
    });
    this.update(0);
  }

  get model() {
    return this.models.find((model) => model.name === this.select.value);
  }

  get lines() {
    return source.value.split("\n");
  }

  // The sentence of the cursor, once its line is translated.
  get active() {
    const { line, offset } = this.cursor;
    const answer = this.known.get(this.lines[line]);
    let end = answer?.before.length;
    const holds = (one) => (end += one.source.length) > offset;
    return answer?.sentences.find(holds) ?? answer?.sentences.at(-1);
  }

  // Shows another sentence, or another alternative of the sentence.
  show(cursor, chosen = 0, pause = 0) {
    this.cursor = cursor;
    this.chosen = chosen;
    this.update(pause);
  }

  // Follows the cursor.
  move(cursor) {
    const { active } = this;
    const { line } = this.cursor;
    this.cursor = cursor;
    if (line !== cursor.line || active !== this.active) {
      this.show(cursor, 0, PAUSE_MS);
    }
  }

  // Translates the lines that are not known yet, after a pause; drops earlier
  // answers that come too late.
  async update(pause) {
    this.controller.abort();
    this.controller = new AbortController();
    const { signal } = this.controller;
    this.message.textContent = "";
    this.map.show(null);
    this.render();
    try {
      await sleep(pause, signal);
      await this.translate(signal);
      this.render();
      await this.showAttention(signal);
    } catch (error) {
      if (!signal.aborted) this.message.textContent = error.message;
    }
  }

  content(lines, more = {}) {
    const { model, limits } = this;
    const n_best = Math.min(
      model.beam_size,
      limits.max_beam_size,
      MOST_ALTERNATIVES,
    );
    return { model: model.name, lines, n_best, ...more };
  }

  async translate(signal) {
    const missing = this.lines.filter((x) => x.trim() && !this.known.has(x));
    const lines = [...new Set(missing)];
    if (this.known.size + lines.length > MOST_REMEMBERED) {
      for (const line of this.known.keys()) {
        if (!this.lines.includes(line)) this.known.delete(line);
      }
    }
    while (lines.length) {
      const part = [];
      let count = 0; // of sentences
      do {
        part.push(lines.shift());
        count += mostSentences(part.at(-1));
      } while (
        lines.length &&
        count + mostSentences(lines[0]) <= this.limits.max_lines
      );
      const more = { split_sentences: true };
      const answers = await ask(this.content(part, more), signal);
      part.forEach((line, i) => this.known.set(line, answers[i]));
    }
  }

  async showAttention(signal) {
    const { active } = this;
    const hypothesis = active?.hypotheses[this.chosen];
    if (!this.model.attention) {
      this.map.show(null, "Only a run shows attention.");
      return;
    }
    if (!hypothesis?.text) return;
    if (!hypothesis.attention) {
      const more = { attention: true };
      if (!this.chosen) more.n_best = 1;
      const lines = [active.source.trim()];
      const [answer] = await ask(this.content(lines, more), signal);
      hypothesis.attention = answer.hypotheses[this.chosen]?.attention;
    }
    this.map.show(hypothesis.attention ?? null);
  }

  render() {
    const { lines } = this;
    const isOld = lines.some((x) => x.trim() && !this.known.has(x));
    this.output.ariaBusy = isOld;
    this.output.lang = this.list.lang = this.model.target_language || "";
    if (isOld) return;
    this.copy.textContent = "Copy";
    this.copy.hidden = !source.value.trim();
    const found = this.active;
    $(".more", this.root).hidden = !found;
    this.output.replaceChildren(
      ...lines.map((line, number) => {
        const answer = this.known.get(line);
        const parts = (answer?.sentences ?? []).flatMap((sentence) => {
          // A line may stand twice.
          const isActive = sentence === found && number === this.cursor.line;
          const { text } =
            sentence.hypotheses[isActive ? this.chosen : 0] ?? {};
          const part = make("span", { textContent: text ?? "" });
          part.classList.toggle("active", isActive);
          part.classList.toggle("cut", !sentence.complete);
          return [part, sentence.after];
        });
        // What is copied gets one line end after a <div>, two after a <p>.
        if (!line) parts.push(make("br"));
        return make("div", { dir: "auto" }, answer?.before ?? "", ...parts);
      }),
    );
    if (found?.long) this.message.textContent = LONG;
    if (found) this.renderOthers(found.hypotheses);
  }

  renderOthers(hypotheses) {
    const hadFocus = this.list.contains(document.activeElement);
    this.list.replaceChildren(
      ...hypotheses.map(({ text, score }, i) => {
        const number = make("span", {
          className: "score",
          textContent: score.toFixed(2).replace("-", "−"),
        });
        const share = Math.exp(score - hypotheses[0].score);
        number.style.setProperty("--share", share.toFixed(4));
        const words = make("span", { className: "text", textContent: text });
        words.dir = "auto";
        const button = make("button", { type: "button" }, number, words);
        button.ariaPressed = i === this.chosen;
        button.ariaLabel = `${text}, score ${score.toFixed(2)}`;
        button.addEventListener("click", () => this.show(this.cursor, i));
        return make("li", {}, button);
      }),
    );
    if (hadFocus) $('[aria-pressed="true"]', this.list).focus();
  }
}

// ----------------------------------------------------------------- the page

function languageName(code) {
  try {
    return new Intl.DisplayNames(["en"], { type: "language" }).of(code);
  } catch {
    return "";
  }
}

function cursorOf() {
  const lines = source.value.slice(0, source.selectionStart).split("\n");
  return { line: lines.length - 1, offset: lines.at(-1).length };
}

// At least as many as the server makes of a line.
function mostSentences(line) {
  return line.split(/[^\p{L}\p{M}\p{N}\s]/u).length;
}

function fitSource() {
  source.style.height = "auto";
  source.style.height = `${source.scrollHeight + 2}px`;
}

async function showWarmUp() {
  const note = $("#preparing");
  do {
    note.hidden = (await fetch("health")).ok;
    await new Promise((resolve) => setTimeout(resolve, 1000));
  } while (!note.hidden);
}

async function start() {
  const response = await fetch("models");
  const { models, limits } = await response.json();
  const known = models.find((model) => model.source_language) ?? models[0];
  const codes = [known.source_language, known.target_language];
  const names = codes.map(languageName);
  if (names.every(Boolean)) {
    document.title = $("#title").textContent = names.join(" → ");
    $("#source-language").textContent = names[0];
    source.lang = codes[0];
  }
  const columns = models
    .slice(0, 2)
    .map(({ name }) => new Column(models, name, limits));
  $("#columns").append(...columns.map((column) => column.root));
  source.addEventListener("input", () => {
    fitSource();
    columns.forEach((column) => column.show(cursorOf(), 0, PAUSE_MS));
  });
  document.addEventListener("selectionchange", () => {
    if (document.activeElement !== source) return;
    columns.forEach((column) => column.move(cursorOf()));
  });
  showWarmUp().catch(() => {}); // others say that the server is gone
  addEventListener("resize", fitSource);
  fitSource();
}

start().catch((error) => {
  $("#failure").textContent = `The server does not answer: ${error.message}`;
});
