/** Passes each message on the first time, and not again. */
export function onceEach(tell: (message: string) => void): (message: string) => void {
  const told = new Set<string>();
  return (message) => {
    if (!told.has(message)) {
      told.add(message);
      tell(message);
    }
  };
}
