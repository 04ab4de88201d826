/** Finds the proxy of a request; undefined: the request goes directly to the server. */
export type FindProxy = (url: URL) => URL | undefined;

/**
 * Reads HTTPS_PROXY, HTTP_PROXY and NO_PROXY, also in lower case. NO_PROXY is `*`, or a list of hosts with or without a
 * port; a host includes its subdomains.
 */
export function proxiesOf(env: Readonly<Record<string, string | undefined>>): FindProxy {
  const read = (name: string): string => env[name.toLowerCase()] ?? env[name] ?? "";
  const none = read("NO_PROXY")
    .split(/[\s,]+/)
    .filter((entry) => entry !== "");
  return (url) => {
    const proxy = read(url.protocol === "https:" ? "HTTPS_PROXY" : "HTTP_PROXY");
    return proxy === "" || none.some((entry) => covers(entry, url))
      ? undefined
      : new URL(proxy.includes("://") ? proxy : `http://${proxy}`);
  };
}

function covers(entry: string, { hostname, port, protocol }: URL): boolean {
  if (entry === "*") {
    return true;
  }
  const [, name = "", ofPort] = /^\*?\.?(.*?)(?::(\d+))?$/.exec(entry.toLowerCase()) ?? [];
  const used = port === "" ? (protocol === "https:" ? "443" : "80") : port;
  return (ofPort === undefined || ofPort === used) && (hostname === name || hostname.endsWith(`.${name}`));
}
