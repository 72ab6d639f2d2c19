/** Sends heads of requests byte by byte. Answers each message of the parent with a report, until the parent disconnects. */
import { Drips, parseDripJob } from './capacity/drips.ts';

const drips = new Drips(parseDripJob(process.argv[2]));
await drips.open();
console.log(JSON.stringify({ msg: 'listening', url: 'dripping' }));
process.on('disconnect', () => process.exit(0));
process.on('message', () => process.send?.(drips.report()));
