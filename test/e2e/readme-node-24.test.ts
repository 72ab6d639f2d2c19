import { readmeCommands } from '../support/readme-commands.ts';

readmeCommands('24.21.0', true);
