/** Holds idle streams. Answers each message of the parent with a report, until the parent disconnects. */
import { IdleStreams } from './capacity/idle-streams.ts';
import { parseIdleJob } from './capacity/stream-job.ts';

const streams = new IdleStreams(parseIdleJob(process.argv[2]));
await streams.open();
console.log(JSON.stringify({ msg: 'listening', url: 'idle' }));
process.on('disconnect', () => process.exit(0));
process.on('message', () => process.send?.(streams.report()));
