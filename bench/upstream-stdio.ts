/** The upstream of the stdio scenarios: the answers of `upstream-http.ts`, one message per line, on raw buffers. */
import { answerTo } from './answers.ts';

const LF = 0x0a;
const LINE_BREAK = Buffer.from('\n');

const speaks = process.argv[2] === '2026-07-28' ? '2026-07-28' : '2025-11-25';

let held: Buffer[] = [];

process.stdin.on('data', (chunk: Buffer) => {
  const answers: Buffer[] = [];
  let start = 0;
  for (;;) {
    const end = chunk.indexOf(LF, start);
    if (end < 0) break;
    const piece = chunk.subarray(start, end);
    const line = held.length === 0 ? piece : Buffer.concat([...held, piece]);
    held = [];
    start = end + 1;
    const answer = line.length === 0 ? undefined : answerTo(line.toString(), speaks);
    if (answer === undefined) continue;
    if (answer.before !== undefined) answers.push(Buffer.from(answer.before), LINE_BREAK);
    answers.push(Buffer.from(answer.head), answer.tail, LINE_BREAK);
  }
  if (start < chunk.length) held.push(chunk.subarray(start));
  // One write for all messages that arrived together: one per answer would cost the reader more.
  if (answers.length > 0) process.stdout.write(Buffer.concat(answers));
});
process.stdin.on('end', () => process.exit(0));
