// Keeps Kilo to the configuration that it was launched with, and names the session in each request.
// KILO_DISABLE_PROJECT_CONFIG does not cover what Kilo migrates from its predecessor's files in the
// workdir (.kilocode/, .kilocodemodes, .kilocodeignore): MCP servers, rules, modes, workflows.
import { readFileSync } from "node:fs"
import { dirname, join } from "node:path"
import { fileURLToPath } from "node:url"

const folder = dirname(fileURLToPath(import.meta.url))
const planned = JSON.parse(readFileSync(join(folder, "planned.json"), "utf8"))

export const PlannedConfiguration = async () => ({
  config: async (config) => {
    for (const key of ["agent", "command", "instructions", "mcp", "mode", "permission"]) {
      if (key in planned) config[key] = planned[key]
      else delete config[key]
    }
  },
  // 7.0.33 sends no session id of its own; 7.7.7 sends the same one under the same name.
  "chat.headers": async ({ sessionID }, output) => {
    output.headers["x-session-id"] = sessionID
  },
})
