/** Passes each message on the first time, and not again. */
export function onceEach(log: (message: string) => void): (message: string) => void {
  const logged = new Set<string>();
  return (message) => {
    if (!logged.has(message)) {
      logged.add(message);
      log(message);
    }
  };
}
