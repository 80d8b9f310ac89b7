package schedule

import (
	"crypto/sha256"
	"os"
	"time"
)

// localtime is the machine's zone, on the systems that have it in a file.
const localtime = "/etc/localtime"

// zone is a time zone, and a sum of its rules by which a change shows. Without a location it is that of each time.
type zone struct {
	location *time.Location
	sum      [sha256.Size]byte
}

// zoneFile is the file that says where the machine is; empty where the environment fixes the zone.
func zoneFile() string {
	if _, fixed := os.LookupEnv("TZ"); fixed {
		return ""
	}
	return localtime
}

// readZone reads the machine's zone as it is now: a laptop travels, and Go's own Local stays where the program started.
func readZone(path string) zone {
	if path != "" {
		if data, err := os.ReadFile(path); err == nil {
			if location, err := time.LoadLocationFromTZData("Local", data); err == nil {
				return zone{location, sha256.Sum256(data)}
			}
		}
	}
	return zone{}
}
