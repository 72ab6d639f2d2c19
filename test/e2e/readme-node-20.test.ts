import { readmeCommands } from '../support/readme-commands.ts';

readmeCommands('20.20.2', false);
