/** The clients of a soak in a process of their own. They end on SIGTERM, and print one line of JSON: what they have done. */
import { SoakClients } from './soak/clients.ts';
import { parseSoakJob } from './soak/job.ts';

const clients = new SoakClients(parseSoakJob(process.argv[2]));
process.once('SIGTERM', () => clients.stop());
await clients.run();
console.log(JSON.stringify(clients.tally.toJson()));
process.exit(0);
