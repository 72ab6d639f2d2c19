/** An upstream over stdio that writes the bytes which its calls name. */
import { createInterface } from 'node:readline';
import { setImmediate as turn } from 'node:timers/promises';
import { rawAnswer } from './raw-answers.ts';

for await (const line of createInterface({ input: process.stdin })) {
  const answer = rawAnswer(line);
  if (answer.kind === 'message') process.stdout.write(`${answer.text}\n`);
  if (answer.kind !== 'bytes') continue;
  for (const chunk of answer.chunks) {
    process.stdout.write(chunk);
    await turn();
  }
}
