/*
 * Stands between the program and its queries: names each statement that is sent to Postgres, and calls back
 * before it, after it, and in the middle of a COPY, with half of it on its way.
 */
/** @param {string} text */
function kindOf(text) {
  return text
    .trim()
    .replaceAll(/\s+/g, " ")
    .replaceAll(/[0-9a-f]{12}/g, "…")
    .slice(0, 48);
}

/**
 * Calls back from every query of this process. Returns a function that ends this.
 * @param clients the prototype of the class `Client` of `pg`
 */
export function watchQueries(clients, { before, after, inCopy, sent }) {
  const query = Reflect.get(clients, "query");
  const seen = new Map();
  const nameCall = (text) => {
    const kind = kindOf(text);
    const count = (seen.get(kind) ?? 0) + 1;
    seen.set(kind, count);
    return `${kind} #${count}`;
  };
  clients.query = function (config, ...rest) {
    const text = typeof config === "string" ? config : config?.text;
    if (typeof text !== "string" || typeof rest.at(-1) === "function") {
      return query.call(this, config, ...rest);
    }
    const call = nameCall(text);
    if (typeof config.write === "function") {
      void before?.(call);
      holdLast(config, call, inCopy);
      config.once("finish", () => void after?.(call));
      return query.call(this, config, ...rest);
    }
    return (async () => {
      await before?.(call);
      const answer = Promise.resolve(query.call(this, config, ...rest));
      answer.catch(() => undefined);
      await sent?.(call);
      const result = await answer;
      await after?.(call);
      return result;
    })();
  };
  return () => {
    clients.query = query;
  };
}

/** Keeps the end of a COPY back until `inCopy` has been called, and the rest has had time to get there. */
function holdLast(stream, call, inCopy) {
  const { write } = stream;
  let chunks = 0;
  stream.write = (chunk, ...rest) => {
    chunks += 1;
    if (chunks !== 3 || inCopy === undefined) {
      return write.call(stream, chunk, ...rest); // a header, rows
    }
    const held = async () => {
      await new Promise((done) => setTimeout(done, 50));
      await inCopy(call);
      if (!stream.destroyed && write.call(stream, chunk, ...rest)) {
        stream.emit("drain");
      }
    };
    void held();
    return false;
  };
}
