/** Reads large answers slowly. Answers each message of the parent with a report, until the parent disconnects. */
import { SlowReaders } from './capacity/slow-readers.ts';
import { parseSlowJob } from './capacity/stream-job.ts';

const readers = new SlowReaders(parseSlowJob(process.argv[2]));
readers.start();
console.log(JSON.stringify({ msg: 'listening', url: 'reading' }));
process.on('disconnect', () => process.exit(0));
process.on('message', () => process.send?.(readers.report()));
