import { readmeCommands } from '../support/readme-commands.ts';

readmeCommands('22.23.3', true);
