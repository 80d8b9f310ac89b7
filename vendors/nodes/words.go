package nodes

import (
	"net/url"
	"regexp"
	"strings"

	"github.com/ai-process/ktms/pool"
	"github.com/ai-process/ktms/vendors"
)

// hidden stands for what callers need not know of the machines.
const hidden = "[address]"

// addresses are URLs, IP addresses, names with a port, and names with dots. Some words that are none look like one.
var addresses = regexp.MustCompile(`(?i)\b[a-z][a-z0-9+.-]*://[^\s"'<>]+` +
	`|\[?\b(?:[0-9a-f]{1,4}:|:){2,7}[0-9a-f.]*(?:%\w+)?\]?(?::\d{1,5})?` +
	`|\b\d{1,3}(?:\.\d{1,3}){3}(?::\d{1,5})?\b` +
	`|\b[a-z0-9_][a-z0-9_.-]*:\d{2,5}\b` +
	`|\b[a-z0-9_](?:[a-z0-9_-]*\.)+[a-z][a-z0-9-]+\b`)

// minWord is the shortest name that is looked for in what a machine says: shorter ones are in any text.
const minWord = 4

// discreet is what a machine said without where it is. What went wrong on it, and proxies before it, is told with their own
// addresses; what is wrong with the request is told in its words, which may be the caller's.
func discreet(e *vendors.Error, n *pool.Node) string {
	said := e.Message
	switch e.Kind {
	case vendors.Unavailable, vendors.Denied, vendors.RateLimited:
		said = addresses.ReplaceAllLiteralString(said, hidden)
	default:
	}
	names := []string{n.ID, n.Name}
	if u, err := url.Parse(n.Endpoint); err == nil {
		names = append([]string{u.Host, u.Hostname()}, names...)
	}
	for _, name := range names {
		if len(name) >= minWord {
			said = strings.ReplaceAll(said, name, hidden)
		}
	}
	return said
}
