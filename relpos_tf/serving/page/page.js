// The page of relpos-serve: a text, its translations by one model or two,
// alternatives with scores, forced beginnings, and attention.
"use strict";

const PAUSE_MS = 180; // after the last key, before a request
const ATTENTION_PAUSE_MS = 120; // after a translation
const MOST_REMEMBERED = 400; // translated lines of a column
const MOST_ALTERNATIVES = 8;
const MOST_TRIES = 5; // where the server is busy
const KINDS = {
  run: "",
  saved_model: "SavedModel",
  ctranslate2: "CTranslate2",
  litert: "LiteRT",
};
// Pixels of the attention map.
const CELL = { least: 13, most: 30 };
const LABEL = { least: 10.5, most: 14 };

const $ = (selector, root = document) => root.querySelector(selector);

function make(name, properties = {}, ...children) {
  const element = Object.assign(document.createElement(name), properties);
  element.append(...children);
  return element;
}

function draw(name, attributes, text) {
  const svg = "http://www.w3.org/2000/svg";
  const element = document.createElementNS(svg, name);
  for (const [key, value] of Object.entries(attributes)) {
    element.setAttribute(key, value);
  }
  if (text !== undefined) element.textContent = text;
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
    signal.throwIfAborted(); // meanwhile the text has changed
    if (response.ok) return answer.translations;
    const seconds = Number(response.headers.get("retry-after"));
    if (!seconds || tries === MOST_TRIES) {
      throw new Error(answer.error || `Status ${response.status}.`);
    }
    await sleep(1000 * seconds, signal);
  }
}

// ---------------------------------------------------------------- pieces

// Joins the pieces of a tokenizer to words, punctuation apart.
//
// Returns [{text, parts, start, end, isEnd}]: `parts` are indices of pieces,
// `start` and `end` count characters other than spaces, from the first.
function wordsOf(pieces) {
  const isMarked = pieces.some((piece) => piece.startsWith("▁"));
  const words = [];
  let isNew = true;
  let bytes = [];
  let position = 0;
  const add = (text, part, starts) => {
    const isSign = /^[\p{P}\p{S}]+$/u.test(text);
    const last = words.at(-1);
    if (!last || starts || isNew || isSign !== last.isSign) {
      words.push({ text: "", parts: [], start: position, isSign });
    }
    const word = words.at(-1);
    word.text += text;
    word.parts.push(part);
    position += text.length;
    word.end = position;
    isNew = false;
  };
  pieces.forEach((piece, part) => {
    const byte = /^<0x([0-9A-F]{2})>$/.exec(piece);
    if (byte) {
      bytes.push(parseInt(byte[1], 16));
      const text = new TextDecoder().decode(new Uint8Array(bytes));
      const isWhole = !text.includes("\ufffd");
      add(isWhole ? text : "", part, false);
      if (isWhole) bytes = [];
      return;
    }
    bytes = [];
    if (piece === "</s>" || piece === "<EOS>") {
      words.push({ text: "end", parts: [part], isEnd: true });
    } else if (isMarked) {
      const text = piece.replaceAll("▁", "");
      if (piece.startsWith("▁")) isNew = true;
      if (text) add(text, part, false);
    } else {
      add(piece.replace(/_$/, ""), part, false);
      isNew = piece.endsWith("_");
    }
  });
  return words;
}

// Returns the ranges of a text that words take, or null if they differ.
function rangesOf(words, text) {
  const places = [];
  for (let i = 0; i < text.length; i++) {
    if (!/\s/.test(text[i])) places.push(i);
  }
  const real = words.filter((word) => !word.isEnd);
  if (!real.length || real.at(-1).end !== places.length) return null;
  return real.map((word) => [places[word.start], places[word.end - 1] + 1]);
}

// Splits a text at spaces and around punctuation: [start, end] of each word.
function splitText(text) {
  return [...text.matchAll(/[\p{P}\p{S}]+|[^\s\p{P}\p{S}]+/gu)].map(
    (match) => [match.index, match.index + match[0].length],
  );
}

// Weights of words [T][S] from those of pieces [layers][heads][t][s]: a mean
// over the pieces of a target word, a sum over those of a source word.
function joinWeights(weights, sources, targets, layer, head) {
  const maps = weights
    .filter((_, i) => layer < 0 || i === layer)
    .flatMap((heads) => heads.filter((_, i) => head < 0 || i === head));
  return targets.map((target) =>
    sources.map((source) => {
      let sum = 0;
      for (const map of maps) {
        for (const t of target.parts) {
          for (const s of source.parts) sum += map[t][s];
        }
      }
      return sum / maps.length / target.parts.length;
    }),
  );
}

// Returns which words of `words` are not in the longest common subsequence
// with `others`.
function newWords(words, others) {
  const n = words.length;
  const m = others.length;
  const best = Array.from({ length: n + 1 }, () => new Uint16Array(m + 1));
  for (let i = n - 1; i >= 0; i--) {
    for (let j = m - 1; j >= 0; j--) {
      best[i][j] =
        words[i] === others[j]
          ? best[i + 1][j + 1] + 1
          : Math.max(best[i + 1][j], best[i][j + 1]);
    }
  }
  const isNew = new Array(n).fill(true);
  for (let i = 0, j = 0; i < n && j < m; ) {
    if (words[i] === others[j]) {
      isNew[i++] = false;
      j++;
    } else if (best[i + 1][j] >= best[i][j + 1]) i++;
    else j++;
  }
  return isNew;
}

// ---------------------------------------------------------------- source

// The text to translate, with a mirror whose words can be coloured.
class Source {
  constructor(onChange, onMove) {
    this.area = $("#source");
    this.mirror = $("#mirror");
    this.area.addEventListener("input", () => {
      this.shine([], null);
      this.fit();
      onChange();
    });
    document.addEventListener("selectionchange", () => {
      if (document.activeElement === this.area) onMove(this.caretLine());
    });
    addEventListener("resize", () => this.fit());
    this.fit();
  }

  get lines() {
    return this.area.value.split("\n");
  }

  caretLine() {
    const before = this.area.value.slice(0, this.area.selectionStart);
    return before.split("\n").length - 1;
  }

  fit() {
    this.area.style.height = "auto";
    this.area.style.height = `${this.area.scrollHeight + 2}px`;
  }

  // Colours ranges of a line; `ranges` null: no word.
  shine(weights, ranges, number = 0) {
    this.mirror.replaceChildren();
    if (!ranges) return;
    const lines = this.lines;
    const line = lines[number];
    const before = lines.slice(0, number).join("\n");
    if (number) this.mirror.append(`${before}\n`);
    let end = 0;
    ranges.forEach(([from, to], i) => {
      const word = make("span", { textContent: line.slice(from, to) });
      word.style.setProperty("--weight", weights[i].toFixed(3));
      this.mirror.append(line.slice(end, from), word);
      end = to;
    });
    this.mirror.append(line.slice(end));
  }
}

// ------------------------------------------------------------- attention

// The picture of the attention of one translation.
class AttentionMap {
  // `onPoint` gets the indices of a target and a source word; -1: none.
  constructor(root, onPoint) {
    this.root = root;
    this.at = [-1, -1]; // the row and the column that are pointed at
    this.layer = $(".layer", root);
    this.head = $(".head", root);
    this.onPoint = onPoint;
    for (const select of [this.layer, this.head]) {
      select.addEventListener("change", () => this.draw());
    }
    new ResizeObserver(() => this.draw()).observe($(".map", root));
  }

  show(attention) {
    this.attention = attention;
    this.root.classList.toggle("empty", !attention);
    this.at = [-1, -1];
    if (!attention) {
      $(".map", this.root).replaceChildren();
      $(".caption", this.root).textContent = "";
      return;
    }
    this.sources = wordsOf(attention.source);
    this.targets = wordsOf(attention.target);
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
    if (!this.attention) return;
    const { sources, targets } = this;
    this.weights = joinWeights(
      this.attention.weights,
      sources,
      targets,
      Number(this.layer.value),
      Number(this.head.value),
    );
    const map = $(".map", this.root);
    const width = map.clientWidth;
    const right = 26;
    const room = (width - right) / (sources.length + 4);
    const font = Math.max(LABEL.least, Math.min(LABEL.most, 0.9 * room));
    map.style.fontSize = `${font}px`;
    const left = Math.min(this.widest(targets) + 10, 0.45 * width);
    const cell = Math.max(
      CELL.least,
      Math.min(CELL.most, (width - left - right) / sources.length),
    );
    // Labels of columns are slanted, the steeper, the closer they are.
    const slant = cell < 18 ? 65 : 50; // degrees
    const rise = Math.sin((slant / 180) * Math.PI);
    const top = Math.min(rise * this.widest(sources) + 18, 160);
    const size = [
      left + cell * sources.length + right,
      top + cell * targets.length + 4,
    ];
    const svg = draw("svg", {
      width: size[0],
      height: size[1],
      viewBox: `0 0 ${size[0]} ${size[1]}`,
      role: "img",
      "aria-label": this.summary(),
    });
    this.columns = sources.map((word, s) => {
      const x = left + (s + 0.5) * cell + 3;
      const text = draw(
        "text",
        { transform: `translate(${x} ${top - 6}) rotate(${-slant})` },
        word.text,
      );
      if (word.isEnd) text.classList.add("end");
      return text;
    });
    this.rows = targets.map((word, t) => {
      const text = draw(
        "text",
        {
          x: left - 8,
          y: top + (t + 0.5) * cell,
          "text-anchor": "end",
          "dominant-baseline": "central",
        },
        word.text,
      );
      if (word.isEnd) text.classList.add("end");
      return text;
    });
    svg.append(...this.columns, ...this.rows);
    this.weights.forEach((row, t) =>
      row.forEach((weight, s) => {
        const place = {
          x: left + s * cell + 1,
          y: top + t * cell + 1,
          width: cell - 2,
          height: cell - 2,
          rx: 3,
        };
        const ground = draw("rect", place);
        ground.classList.add("ground");
        const strength = Math.min(1, (weight / 0.8) ** 0.9).toFixed(3);
        svg.append(ground, draw("rect", { ...place, opacity: strength }));
      }),
    );
    this.frame = draw("rect", { rx: 4, visibility: "hidden" });
    this.frame.classList.add("frame");
    svg.append(this.frame);
    svg.addEventListener("pointermove", (event) => {
      const box = svg.getBoundingClientRect();
      const s = Math.floor((event.clientX - box.left - left) / cell);
      const t = Math.floor((event.clientY - box.top - top) / cell);
      this.onPoint(
        t >= 0 && t < targets.length ? t : -1,
        s >= 0 && s < sources.length ? s : -1,
      );
    });
    svg.addEventListener("pointerleave", () => this.onPoint(-1, -1));
    this.place = { left, top, cell };
    map.replaceChildren(svg);
    this.point(...this.at);
  }

  // Returns the width of the longest label, in pixels.
  widest(words) {
    const context = make("canvas").getContext("2d");
    const style = getComputedStyle($(".map", this.root));
    context.font = `${style.fontSize} ${style.fontFamily}`;
    return Math.max(...words.map((w) => context.measureText(w.text).width));
  }

  // Marks a row, or a column where there is no row.
  point(t, s) {
    if (!this.attention || !this.place) return;
    this.at = [t, s];
    const { left, top, cell } = this.place;
    this.rows.forEach((text, i) => text.classList.toggle("lit", i === t));
    const wide = cell * this.sources.length;
    const high = cell * this.targets.length;
    const box =
      t >= 0
        ? [left, top + t * cell, wide, cell]
        : [left + s * cell, top, cell, high];
    ["x", "y", "width", "height"].forEach((name, i) =>
      this.frame.setAttribute(name, box[i]),
    );
    const isOn = t >= 0 || s >= 0;
    this.frame.setAttribute("visibility", isOn ? "visible" : "hidden");
    const row = t >= 0 ? this.weights[t] : [];
    this.columns.forEach((text, i) =>
      text.classList.toggle("lit", i === s || row[i] > 0.15),
    );
    this.tell(t, s);
  }

  say(text) {
    $(".caption", this.root).textContent = text;
  }

  // Says the strongest weights in words.
  tell(t, s) {
    const caption = $(".caption", this.root);
    if (t < 0 && s < 0) {
      this.say("Point at a word to see what it attends to.");
      return;
    }
    const isRow = t >= 0;
    const [word, others] = isRow
      ? [this.targets[t], this.sources]
      : [this.sources[s], this.targets];
    const strongest = others
      .map((other, i) => [
        isRow ? this.weights[t][i] : this.weights[i][s],
        other.text,
      ])
      .sort((a, b) => b[0] - a[0])
      .slice(0, 3)
      .filter(([weight]) => weight >= 0.05)
      .map(([weight, text]) => `${text} ${Math.round(100 * weight)} %`);
    caption.replaceChildren(
      make("b", { textContent: word.text }),
      isRow ? " attends to " : " is attended to by ",
      strongest.join(", ") || "nothing in particular",
    );
  }

  summary() {
    const pairs = this.targets
      .map((target, t) => {
        const row = this.weights[t];
        return [target, this.sources[row.indexOf(Math.max(...row))]];
      })
      .filter(([target]) => !target.isEnd)
      .map(([target, source]) => `${target.text} to ${source.text}`);
    return `Attention, strongest weights: ${pairs.join(", ")}.`;
  }
}

// --------------------------------------------------------------- a column

// The translations of one model.
class Column {
  constructor(models, first, source, limits) {
    this.models = models;
    this.limits = limits;
    this.source = source;
    this.root = $("#column").content.cloneNode(true).firstElementChild;
    this.select = $(".model", this.root);
    this.output = $(".translation", this.root);
    this.input = $(".beginning input", this.root);
    this.clear = $(".clear", this.root);
    this.message = $(".message", this.root);
    this.time = $(".time", this.root);
    this.list = $(".others ol", this.root);
    this.more = $(".more", this.root);
    this.active = 0; // the line that `more` is about
    this.chosen = 0; // its alternative that is shown
    this.beginnings = new Map(); // by number of line
    this.known = new Map(); // hypotheses by line and beginning
    this.controller = new AbortController();
    for (const model of models) {
      const note = KINDS[model.kind] ?? model.kind;
      this.select.append(
        new Option(note ? `${model.name} · ${note}` : model.name, model.name),
      );
    }
    this.select.value = first;
    this.select.disabled = models.length === 1;
    this.map = new AttentionMap($(".attention", this.root), (t, s) =>
      this.point(t, s),
    );
    this.listen();
    this.adopt();
  }

  get model() {
    return this.models.find((model) => model.name === this.select.value);
  }

  get alternatives() {
    const most = this.limits.max_beam_size;
    return Math.min(this.model.beam_size, MOST_ALTERNATIVES, most);
  }

  listen() {
    this.select.addEventListener("change", () => this.adopt());
    this.input.addEventListener("input", () => this.begin(this.input.value));
    this.clear.addEventListener("click", () => {
      this.begin("");
      this.input.focus();
    });
    this.root.addEventListener("keydown", (event) => {
      if (event.key === "Escape" && this.beginnings.get(this.active)) {
        this.begin("");
      }
    });
    $(".copy", this.root).addEventListener("click", (event) =>
      this.copy(event.currentTarget),
    );
    this.output.addEventListener("keydown", (event) => this.walk(event));
    this.output.addEventListener("focusin", (event) => this.enter(event));
    this.output.addEventListener("pointerover", (event) => this.enter(event));
    for (const name of ["pointerleave", "focusout"]) {
      this.output.addEventListener(name, () => this.point(-1, -1));
    }
    this.output.addEventListener("click", (event) => {
      const word = event.target.closest(".word");
      // The first touch of a word is what pointing at it is with a mouse.
      const isSecond = event.pointerType !== "touch" || word === this.touched;
      this.touched = word;
      if (word && isSecond) this.change(word);
    });
  }

  // Takes another model.
  adopt() {
    this.known.clear();
    const { model } = this;
    this.output.lang = model.target_language || "";
    this.input.lang = model.target_language || "";
    this.input.disabled = !model.prefix;
    this.input.placeholder = model.prefix ? "" : "only a run takes a beginning";
    this.root.setAttribute("aria-label", `Translation by ${model.name}`);
    this.map.show(null);
    this.update(0);
  }

  remove() {
    this.controller.abort();
    this.root.remove();
  }

  key(line, beginning) {
    return `${beginning}\n${line}`;
  }

  hypotheses(number) {
    const line = this.source.lines[number] ?? "";
    const beginning = this.beginnings.get(number) ?? "";
    return this.known.get(this.key(line, beginning));
  }

  // Translates what is not known yet, after a pause; drops earlier answers.
  async update(pause = PAUSE_MS) {
    this.controller.abort();
    this.controller = new AbortController();
    const { signal } = this.controller;
    this.message.textContent = "";
    this.render();
    try {
      await sleep(pause, signal);
      const missing = this.missing();
      const begun = performance.now();
      for (const group of missing) await this.fetch(group, signal);
      if (missing.length) {
        const ms = Math.round(performance.now() - begun);
        this.time.textContent = `${ms} ms`;
      }
      this.render();
      await sleep(ATTENTION_PAUSE_MS, signal);
      await this.showAttention(signal);
    } catch (error) {
      if (signal.aborted) return;
      this.message.textContent = error.message;
    }
  }

  // Returns lists of [line, beginning]: those with and without a beginning.
  missing() {
    const plain = new Map();
    const forced = new Map();
    this.source.lines.forEach((line, number) => {
      if (!line.trim() || this.hypotheses(number)) return;
      const beginning = this.beginnings.get(number) ?? "";
      const group = beginning ? forced : plain;
      group.set(this.key(line, beginning), [line, beginning]);
    });
    return [plain, forced]
      .map((group) => [...group.values()])
      .filter((group) => group.length);
  }

  content(pairs, more) {
    const content = {
      model: this.model.name,
      lines: pairs.map(([line]) => line),
      n_best: this.alternatives,
      ...more,
    };
    if (pairs.some(([, beginning]) => beginning)) {
      content.prefix = pairs.map(([, beginning]) => beginning);
    }
    return content;
  }

  async fetch(pairs, signal) {
    const most = this.limits.max_lines;
    for (let i = 0; i < pairs.length; i += most) {
      const part = pairs.slice(i, i + most);
      const answers = await ask(this.content(part, {}), signal);
      part.forEach((pair, j) => {
        this.known.set(this.key(...pair), answers[j]);
      });
    }
    const number = this.known.size - Math.max(MOST_REMEMBERED, pairs.length);
    for (const key of [...this.known.keys()].slice(0, Math.max(0, number))) {
      this.known.delete(key);
    }
  }

  async showAttention(signal) {
    const found = this.hypotheses(this.active);
    const hypothesis = found?.hypotheses[this.chosen];
    if (!this.model.attention || !hypothesis?.text) {
      this.map.show(null);
      if (!this.model.attention) this.map.say("Only a run shows attention.");
      return;
    }
    if (!hypothesis.attention) {
      const line = this.source.lines[this.active];
      const pair = [line, this.beginnings.get(this.active) ?? ""];
      const more = { attention: "heads" };
      if (!this.chosen) more.n_best = 1;
      const [answer] = await ask(this.content([pair], more), signal);
      const same = answer.hypotheses[this.chosen];
      if (same?.text === hypothesis.text) {
        hypothesis.attention = same.attention;
      }
    }
    this.map.show(hypothesis.attention ?? null);
    this.link();
  }

  // ------------------------------------------------------------ what is seen

  render() {
    const { lines } = this.source;
    const isOld = lines.some((x, i) => x.trim() && !this.hypotheses(i));
    this.output.classList.toggle("waits", isOld);
    this.output.setAttribute("aria-busy", isOld);
    $(".copy", this.root).disabled = !lines.some((line) => line.trim());
    if (!isOld) this.renderLines(lines);
    const found = this.hypotheses(this.active);
    this.more.hidden = !found && !lines[this.active]?.trim();
    if (found) this.renderOthers(found.hypotheses);
    const beginning = this.beginnings.get(this.active) ?? "";
    if (this.input.value !== beginning) this.input.value = beginning;
    this.clear.hidden = !beginning;
  }

  renderLines(lines) {
    this.output.replaceChildren();
    lines.forEach((line, number) => {
      const found = line.trim() ? this.hypotheses(number) : null;
      const isActive = number === this.active;
      const index = isActive ? this.chosen : 0;
      const text = found?.hypotheses[index]?.text ?? "";
      const row = make("p", { dir: "auto" });
      row.classList.toggle("active", isActive || lines.length === 1);
      row.classList.toggle("cut", Boolean(found) && !found.complete);
      row.dataset.number = number;
      const forced = this.beginnings.get(number)?.trim().length ?? 0;
      let end = 0;
      for (const [from, to] of splitText(text)) {
        const word = make("span", {
          className: to <= forced ? "word forced" : "word",
          textContent: text.slice(from, to),
        });
        if (this.model.prefix || this.model.attention) {
          word.tabIndex = -1;
          word.setAttribute("role", "button");
        }
        word.dataset.from = from;
        row.append(text.slice(end, from), word);
        end = to;
      }
      row.append(text.slice(end));
      this.output.append(row);
    });
    // One word is in the order of Tab; the arrows lead to the others.
    const words = this.words();
    if (words[0]?.role === "button") words[0].tabIndex = 0;
    this.link();
  }

  words() {
    return [...this.output.querySelectorAll(".word")];
  }

  renderOthers(hypotheses) {
    const best = hypotheses[0]?.text.split(" ") ?? [];
    const top = hypotheses[0]?.score ?? 0;
    const focused = this.list.contains(document.activeElement);
    this.list.replaceChildren(
      ...hypotheses.map(({ text, score }, i) => {
        const words = text.split(" ");
        const isNew = newWords(words, best);
        const shown = make("span", { className: "text", dir: "auto" });
        shown.lang = this.output.lang;
        words.forEach((word, j) => {
          const name = isNew[j] || !i ? "b" : "span";
          shown.append(j ? " " : "", make(name, { textContent: word }));
        });
        const number = make("span", {
          className: "score",
          textContent: score.toFixed(2).replace("-", "−"),
        });
        // As probable as the best one: a full bar.
        number.style.setProperty("--share", Math.exp(score - top).toFixed(4));
        const button = make("button", { type: "button" }, number, shown);
        button.setAttribute("aria-pressed", i === this.chosen);
        button.setAttribute(
          "aria-label",
          `${text}, score ${score.toFixed(2)}`,
        );
        button.addEventListener("click", () => this.choose(i));
        return make("li", {}, button);
      }),
    );
    if (focused) $('[aria-pressed="true"]', this.list)?.focus();
  }

  // ------------------------------------------------------------ what is done

  choose(index) {
    this.chosen = index;
    this.map.show(null);
    this.update(0);
  }

  // Goes to the line where the caret is.
  moveTo(number) {
    if (number === this.active) return;
    this.active = number;
    this.chosen = 0;
    this.map.show(null);
    this.update(0);
  }

  begin(text) {
    this.chosen = 0;
    if (text) this.beginnings.set(this.active, text);
    else this.beginnings.delete(this.active);
    this.update();
  }

  // Forces what stands before a word, and lets the user go on from there.
  change(word) {
    const row = word.parentElement;
    if (!this.model.prefix) return;
    const number = Number(row.dataset.number);
    const before = row.textContent.slice(0, Number(word.dataset.from));
    this.moveTo(number);
    this.begin(before);
    this.input.value = before;
    this.input.focus();
    this.input.setSelectionRange(before.length, before.length);
  }

  walk(event) {
    const words = this.words();
    const at = words.indexOf(document.activeElement);
    if (at < 0) return;
    const to = {
      ArrowRight: at + 1,
      ArrowLeft: at - 1,
      Home: 0,
      End: words.length - 1,
    }[event.key];
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      this.change(words[at]);
    } else if (to !== undefined) {
      event.preventDefault();
      const word = words[Math.max(0, Math.min(words.length - 1, to))];
      words[at].tabIndex = -1;
      word.tabIndex = 0;
      word.focus();
    }
  }

  // A word of the translation is pointed at or has the focus.
  enter(event) {
    const word = event.target.closest(".word");
    if (!word) return;
    const number = Number(word.parentElement.dataset.number);
    if (number !== this.active && event.type === "pointerover") return;
    if (number !== this.active) this.moveTo(number);
    const t = Number(word.dataset.target ?? -1);
    this.point(t, -1);
  }

  // Tells the words of the translation which rows of the map are theirs.
  link() {
    this.sourceRanges = null;
    if (!this.map.attention) return;
    const row = this.output.querySelector(`[data-number="${this.active}"]`);
    if (!row) return;
    const { sources, targets } = this.map;
    const line = this.source.lines[this.active] ?? "";
    this.sourceRanges = rangesOf(sources, line);
    const ranges = rangesOf(targets, row.textContent);
    for (const word of row.querySelectorAll(".word")) {
      const from = Number(word.dataset.from);
      const t = ranges?.findIndex(([a, b]) => a <= from && from < b) ?? -1;
      if (t >= 0) word.dataset.target = t;
    }
    const at = document.activeElement;
    if (row.contains(at)) this.point(Number(at.dataset.target ?? -1), -1);
  }

  // Shows the attention of a target word, or to a source word.
  point(t, s) {
    const { map } = this;
    if (!map.attention) return;
    map.point(t, s);
    const column = t < 0 && s >= 0;
    for (const word of this.words()) {
      const own = Number(word.dataset.target ?? -1);
      const isActive = Number(word.parentElement.dataset.number) === this.active;
      word.classList.toggle("chosen", isActive && own >= 0 && own === t);
      const weight = column && isActive && own >= 0 ? map.weights[own][s] : 0;
      word.style.setProperty("--weight", weight.toFixed(3));
    }
    const weights =
      t >= 0 ? map.weights[t] : map.sources.map((_, i) => Number(i === s));
    const isOn = t >= 0 || s >= 0;
    this.source.shine(weights, isOn ? this.sourceRanges : null, this.active);
  }

  async copy(button) {
    const rows = [...this.output.children].map((row) => row.textContent);
    try {
      await navigator.clipboard.writeText(rows.join("\n"));
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(this.output);
      button.textContent = "Selected";
    }
    setTimeout(() => (button.textContent = "Copy"), 1500);
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

function setUpTheme() {
  const button = $("#theme");
  const themes = ["system", "light", "dark"];
  const apply = (theme) => {
    document.documentElement.dataset.theme = theme;
    button.textContent = { light: "Light", dark: "Dark" }[theme] ?? "Auto";
    button.setAttribute("aria-label", `Colours: ${theme}`);
    button.title = `Colours: ${theme}`;
  };
  let theme = "system";
  try {
    theme = localStorage.getItem("theme") ?? theme;
  } catch {
    // Without storage, the choice holds for this visit.
  }
  apply(themes.includes(theme) ? theme : "system");
  button.addEventListener("click", () => {
    const now = themes.indexOf(document.documentElement.dataset.theme);
    const next = themes[(now + 1) % themes.length];
    apply(next);
    try {
      localStorage.setItem("theme", next);
    } catch {
      // As above.
    }
  });
}

async function start() {
  setUpTheme();
  const response = await fetch("models");
  const { models, limits } = await response.json();
  const known = models.find((model) => model.source_language) ?? models[0];
  const { source_language: from, target_language: to } = known;
  const names = [languageName(from), languageName(to)];
  if (names[0] && names[1]) {
    $("#title").textContent = names.join(" → ");
    $("#source-language").textContent = names[0];
    document.title = names.join(" → ");
  }
  let columns = [];
  const source = new Source(
    () => {
      for (const column of columns) {
        column.active = source.caretLine();
        column.chosen = 0;
        column.map.show(null);
        column.update();
      }
    },
    (number) => columns.forEach((column) => column.moveTo(number)),
  );
  source.area.lang = from || "";
  const compare = $("#compare");
  const show = (count) => {
    while (columns.length > count) columns.pop().remove();
    while (columns.length < count) {
      const { name } = models[columns.length % models.length];
      const column = new Column(models, name, source, limits);
      columns.push(column);
      $("#columns").append(column.root);
      column.active = columns[0].active;
      column.update(0);
    }
    compare.setAttribute("aria-pressed", count === 2);
  };
  compare.hidden = models.length < 2;
  compare.addEventListener("click", () => show(columns.length === 2 ? 1 : 2));
  show(Math.min(2, models.length));
}

start().catch((error) => {
  $("#failure").textContent = `The server does not answer: ${error.message}`;
});
