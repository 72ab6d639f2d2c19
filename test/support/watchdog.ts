/** Ends a process of tests that does not end by itself, such as one whose failed test has left a server open. Preloaded by `test/run.ts`. */
const LATEST_MS = 6 * 60_000;

setTimeout(() => {
  const held = process.getActiveResourcesInfo().join(', ');
  console.error(`this test file has not ended after ${LATEST_MS / 60_000} minutes; open: ${held}`);
  process.exit(1);
}, LATEST_MS).unref();
