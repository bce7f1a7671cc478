(() => {
  // Browsers send at most 64 KB while a page closes.
  const BYTES = 60_000;

  // crypto.randomUUID is missing on plain HTTP; the address of a blob ends with a UUID.
  const uuid = () => {
    const url = URL.createObjectURL(new Blob());
    URL.revokeObjectURL(url);
    return url.slice(-36);
  };

  const isKey = (key) => /^pk_\w+$/.test(key);

  const isText = (text, max = BYTES) =>
    text == null || (typeof text == "string" && !/\p{Cs}/u.test(text) && [...text].length <= max);

  function Mauve({ key, url }) {
    if (!isKey(key) || !/^https?:/.test(url))
      throw new TypeError("key must be your publishable key, not a secret one, url absolute");
    let waiting = [];
    let inFlight = 0;
    let failures = 0;
    let batchMax = 500;
    let isHeld, timer;
    const told = {};

    this.track = (name, options) => {
      try {
        let { user, props, id, at, ...rest } = options ?? {};
        if (user === +user) warn("user must be a string, not", (user += ""));
        const kept = {};
        let room = 100;
        for (const [prop, value] of Object.entries((props ??= {}))) {
          const text = typeof value == "string" ? [...value].slice(0, 1024).join("") : value;
          if ((isText(text) || text === !!text || Number.isFinite(text)) && isText(prop) && room && room--) kept[prop] = text;
          if (kept[prop] !== value) warn("props must be at most 100, flat, of 1024 characters, not", prop);
        }
        const text = JSON.stringify({ name, user, id: id || uuid(), at: at ?? new Date(), props: kept });
        const bytes = 40 + new Blob([text]).size;
        const isEvent = name && name != "payment" && isText(name, 128) && isText(user, 256) && isText(id, 256);
        if (!isEvent || bytes > BYTES) throw "name must be 1 to 128 characters, not payment, user and id 256, all 60 KB";
        if ({}.toString.call(props) != "[object Object]") throw "props must be an object";
        for (const option in rest) warn("options are user, props, id and at, not", option);
        waiting.push({ text, bytes, queuedAt: Date.now() });
        if (waiting.length > 1000 && waiting.shift()) warn("events are dropped: queue is full");
        if (!timer) schedule(1);
      } catch (error) {
        warn("events are dropped:", error);
      }
    };

    const schedule = (seconds) => {
      clearTimeout(timer);
      timer = setTimeout(() => send((isHeld = false)), 1000 * seconds);
    };

    const send = async (isLeaving) => {
      if (isHeld || (inFlight && !isLeaving)) return;
      timer = clearTimeout(timer);
      const batch = [];
      let bytes = 0;
      // After seven days an id may be counted again: events expire an hour before.
      waiting = waiting.filter(({ queuedAt }) => Date.now() - queuedAt < 6012e5);
      while (batch.length < batchMax && inFlight + waiting[0]?.bytes <= BYTES) {
        bytes += waiting[0].bytes;
        inFlight += waiting[0].bytes;
        batch.push(waiting.shift());
      }
      if (!bytes) return;
      const seconds = await post(batch).catch((error) => warn("events are held", url, error) ?? backoff(60));
      inFlight -= bytes;
      if (seconds) {
        waiting.unshift(...batch);
        isHeld = true;
        schedule(seconds);
      } else if (waiting.length && !isHeld) schedule(1);
    };

    // Return the seconds until the next attempt; 0 if the batch needs no further attempt.
    const post = async (batch) => {
      // AbortSignal.timeout is missing in older browsers.
      const limit = new AbortController();
      setTimeout(() => limit.abort(), 1e4);
      const reply = await fetch(url.replace(/\/*$/, "/v1/events"), {
        method: "POST",
        keepalive: true,
        credentials: "omit",
        headers: { authorization: "Bearer " + key, "content-type": "application/json" },
        body: `[${batch.map(({ text }) => text.slice(0, -1) + `,"sent_at":${JSON.stringify(new Date())}}`)}]`,
        signal: limit.signal,
      });
      const { status } = reply;
      const { code, resets_at, error, errors } = (await reply.json().catch(() => {})) ?? {};
      const isCapped = code == "event_cap_reached";
      if (status == 413 && (batchMax = batch.length >> 1)) return 1;
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
      told[text] ??= !console.warn("mauve:", text, ...more);
    };

    // The event is true: the page may end.
    addEventListener("pagehide", send);
    document.addEventListener("visibilitychange", send);
  }

  const script = globalThis.document?.currentScript;
  const key = script?.dataset.key;
  globalThis.Mauve = Mauve;
  // In a bundle this is another script, whose data-key may be anything.
  if (isKey(key)) {
    // A page may have put calls into a queue before this file was there.
    const { q = [] } = (globalThis.mauve ??= {});
    Object.assign(mauve, new Mauve({ key, url: new URL(".", script.src).href }));
    q.push = (call) => mauve.track(...call);
    q.forEach(q.push);
  } else if (/\/mauve\./.test(script?.src)) console.warn("mauve: data-key must be your publishable key, not a secret one");
})();
