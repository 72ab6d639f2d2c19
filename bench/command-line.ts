/** Returns what `read` returns. Ends the process with the usage if the command line asks for it, or `read` throws a TypeError about it. */
export function readOrEnd<T>(usage: string, read: () => T): T {
  const shown = `usage: ${usage}`;
  if (process.argv.slice(2).includes('--help')) {
    console.log(shown);
    process.exit(0);
  }
  try {
    return read();
  } catch (thrown) {
    if (!(thrown instanceof TypeError)) throw thrown;
    console.error(`${thrown.message}\n${shown}`);
    process.exit(2);
  }
}
