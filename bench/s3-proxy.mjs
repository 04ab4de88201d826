// node bench/s3-proxy.mjs PORT DELAY_MS: forwards connections to a port of this machine; what a client says goes on after
// DELAY_MS. A GET comes in one piece, so each request takes that much longer. Says its own port.
import { connect, createServer } from "node:net";

const [port, delayMs] = process.argv.slice(2).map(Number);
const server = createServer({ noDelay: true }, (client) => {
  const onward = connect({ port, host: "127.0.0.1", noDelay: true });
  client.on("data", (piece) => {
    setTimeout(() => onward.write(piece), delayMs);
  });
  client.on("end", () => setTimeout(() => onward.end(), delayMs));
  onward.pipe(client);
  client.on("error", () => onward.destroy());
  onward.on("error", () => client.destroy());
  client.on("close", () => onward.destroy());
});
server.listen(0, "127.0.0.1", () => {
  process.stdout.write(`${server.address().port}\n`);
});
