(() => {
  // Browsers send at most 64 KB while a page closes.
  const BYTES = 60_000;
  // A time in JSON: epoch milliseconds, or RFC 3339 with an offset.
  const TIME = /^(-?\d+|"\d{4}-\d\d-\d\d[T ][\d:.]+(Z|[+-]\d\d:\d\d)")$/i;

  // crypto.randomUUID is missing on plain HTTP; the address of a blob ends with a UUID.
  const uuid = () => {
    const url = URL.createObjectURL(new Blob());
    URL.revokeObjectURL(url);
    return url.slice(-36);
  };

  const check = (isMet, text) => {
    if (!isMet) throw new TypeError("mauve: " + text);
  };

  const isKey = (key) => /^pk_\w+$/.test(key);

  const isText = (text, max) =>
    text == null || (typeof text == "string" && !/\p{Cs}/u.test(text) && [...text].length <= max);

  const isProp = ([name, value]) =>
    isText(name, 1e5) && (isText(value, 1024) || value === !!value || Number.isFinite(value));

  function Mauve({ key, url }) {
    check(isKey(key), "key must be your publishable key, not a secret one");
    check(/^https?:\/\//.test(url), "url must be absolute");
    let waiting = [];
    let inFlight = 0;
    let failures = 0;
    let batchMax = 500;
    let isHeld, timer;
    const told = {};

    this.track = (name, options = {}) => {
      check(options === Object(options), "options must be an object");
      let { user, props, id, at, ...rest } = options;
      check(name && isText(name, 128) && name != "payment", "name must be at most 128 characters, not payment");
      check(isText(user, 256) && isText(id, 256), "user and id must be at most 256 characters");
      const entries = Object.entries(props ?? {});
      const isFlat = /^{/.test(JSON.stringify(props ?? {})) && entries.every(isProp);
      check(isFlat && !entries[100], "props must be at most 100, flat");
      check(TIME.test(JSON.stringify((at ??= new Date()))), "at must be a time");
      const text = JSON.stringify({ name, user, id: id || uuid(), at, props });
      const bytes = 40 + new Blob([text]).size;
      check(bytes < BYTES, "event must be at most 60 KB");
      for (const option in rest) warn("options are user, props, id and at, not", option);
      waiting.push({ text, bytes, queuedAt: Date.now() });
      if (waiting.length > 1000 && waiting.shift()) warn("events are dropped: queue is full");
      if (!timer) schedule(1);
    };

    const schedule = (seconds) => {
      clearTimeout(timer);
      timer = setTimeout(() => {
        isHeld = false;
        send();
      }, 1000 * seconds);
    };

    const send = async (isLeaving) => {
      if (isHeld || (inFlight && !isLeaving)) return;
      clearTimeout(timer);
      timer = 0;
      const batch = [];
      let bytes = 0;
      // After seven days an id may be counted again: events expire an hour before.
      waiting = waiting.filter(({ queuedAt }) => Date.now() - queuedAt < 6012e5);
      for (const event of waiting.slice(0, batchMax)) {
        if (inFlight + bytes + event.bytes > BYTES) break;
        bytes += event.bytes;
        batch.push(event);
      }
      if (!bytes) return;
      waiting.splice(0, batch.length);
      inFlight += bytes;
      const seconds = await post(batch).catch((error) => {
        warn("events are held", url, error);
        return backoff(60);
      });
      inFlight -= bytes;
      if (seconds) {
        waiting.unshift(...batch);
        isHeld = true;
        schedule(seconds);
      } else if (waiting.length && !isHeld) schedule(1);
    };

    // Return the seconds until the next attempt; 0 if the batch was answered for good.
    const post = async (batch) => {
      const reply = await fetch(url.replace(/\/*$/, "/v1/events"), {
        method: "POST",
        keepalive: true,
        credentials: "omit",
        headers: { authorization: "Bearer " + key, "content-type": "application/json" },
        body: `[${batch.map(({ text }) => text.slice(0, -1) + `,"sent_at":${JSON.stringify(new Date())}}`)}]`,
        signal: AbortSignal.timeout(10_000),
      });
      const { status } = reply;
      const { code, resets_at, error, errors } = (await reply.json().catch(() => {})) ?? {};
      const isCapped = code == "event_cap_reached";
      if (status == 413 && batch.length > 1) {
        batchMax = batch.length >> 1;
        return 1;
      }
      const isDone = /202|40[03]|41[35]|422/.test(status) && !isCapped;
      const reason = errors?.[0]?.reason ?? error ?? url;
      if (status != 202 || errors) warn(`events are ${isDone ? "dropped" : "held"}: ${status}`, reason);
      if (isDone) {
        batchMax = 500;
        return (failures = 0);
      }
      if (status == 401) return backoff(300);
      if (status == 402) return 60;
      const after = reply.headers.get("retry-after");
      const until = isCapped ? (resets_at ?? Infinity) : Date.parse(after);
      const seconds = /\D/.test(after) ? (until - Date.now()) / 1000 : +after;
      return seconds >= 1 ? Math.min(seconds, isCapped ? 600 : 3600) : backoff(60);
    };

    const backoff = (max) => 1 + Math.random() * Math.min(max - 1, 2 ** failures++);

    // Once for each text.
    const warn = (text, ...more) => {
      if (!told[text]) console.warn("mauve:", text, ...more);
      told[text] = true;
    };

    // The event is true: the page may end.
    addEventListener("pagehide", send);
    document.addEventListener("visibilitychange", send);
  }

  const script = globalThis.document?.currentScript;
  const { key } = script?.dataset ?? {};
  globalThis.Mauve = Mauve;
  // In a bundle this is another script, whose data-key may be anything.
  if (isKey(key)) globalThis.mauve = new Mauve({ key, url: new URL(".", script.src).href });
  else if (/\/mauve\..*js/.test(script?.src)) console.warn("mauve: data-key must be your publishable key, not a secret one");
})();
