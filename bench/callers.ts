/** Calls at a given rate. Plays a turn for each message of the parent, until the parent disconnects. */
import { parseCallerJob, readCallerTurn } from './capacity/caller-job.ts';
import { OpenLoad } from './capacity/open-load.ts';

const load = new OpenLoad(parseCallerJob(process.argv[2]));
await load.open();
console.log(JSON.stringify({ msg: 'listening', url: 'calling' }));
process.on('disconnect', () => process.exit(0));
process.on('message', (message) => {
  const { ms, ratePerSecond } = readCallerTurn(message);
  void load.play(ms, ratePerSecond).then((report) => process.send?.(report));
});
