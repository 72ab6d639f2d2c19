/** A stdio server with the tool `echo` that sends each response twice, the second time after the given milliseconds. */
import { createInterface } from 'node:readline';
import { echoAnswer } from './echo.ts';

const afterMs = Number(process.argv[2] ?? 5);

for await (const line of createInterface({ input: process.stdin })) {
  const answer = echoAnswer(JSON.parse(line));
  if (answer === undefined) continue;
  const text = `${JSON.stringify(answer)}\n`;
  process.stdout.write(text);
  setTimeout(() => process.stdout.write(text), afterMs);
}
process.exit(0);
