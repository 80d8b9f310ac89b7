package redis

import (
	"crypto/tls"
	"errors"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"
)

// errAddress never quotes the address, which may hold a password.
var errAddress = errors.New("the Redis address is malformed: write host:port, several of them separated by commas " +
	"for a cluster, or a URL such as redis://user:password@host:6379/0 or rediss://host:6379")

// sentinelRefresh is how often Sentinels are asked for the master. They tell of a failover by themselves, but only those
// who listen at that moment.
const sentinelRefresh = 5 * time.Second

const (
	// connectWithin is how long a connection may take to be made, or four calls when those may take longer. It takes two
	// round trips or more, which calls do not wait for: a bound as narrow as theirs would keep a distant Redis away for
	// ever.
	connectWithin = 5 * time.Second
	// sentinelWithin bounds the same for a Sentinel, or two calls: they are asked one after the other, and one whose
	// host is gone must not keep the next one waiting for long.
	sentinelWithin = time.Second
)

// parseAddress makes the connection's settings.
func parseAddress(options Options) (rueidis.ClientOption, error) {
	var connect rueidis.ClientOption
	if strings.Contains(options.Addr, "://") {
		var err error
		if connect, err = rueidis.ParseURL(options.Addr); err != nil {
			return connect, errAddress
		}
	} else {
		for address := range strings.SplitSeq(options.Addr, ",") {
			connect.InitAddress = append(connect.InitAddress, strings.TrimSpace(address))
		}
	}
	if connect.DialCtxFn == nil { // it is set for the path of a socket
		connect.DialCtxFn = dialTCP
		for _, address := range connect.InitAddress {
			if !isHostPort(address) {
				return connect, errAddress
			}
		}
	}
	if connect.Password == "" {
		connect.Password = options.Password
	}
	if !namesDatabase(options.Addr) {
		connect.SelectDB = options.DB
	}

	// Whoever may have been answered is never asked twice: an admission would be booked twice.
	connect.DisableRetry = true
	connect.DisableCache, connect.ClientTrackingOptions = false, nil // only what is asked for as such is cached
	connect.ClientName = "ktms"
	// One connection to each server, which carries the calls of everybody: more are not faster, since one script runs at
	// a time, and would break one by one for calls to find out.
	connect.PipelineMultiplex = -1
	connect.Dialer.Timeout = max(connectWithin, 4*options.Timeout)
	connect.ConnWriteTimeout = options.Timeout
	connect.Sentinel.Dialer.Timeout = max(sentinelWithin, 2*options.Timeout)
	connect.Sentinel.Username, connect.Sentinel.Password = connect.Username, connect.Password
	connect.Sentinel.TLSConfig = cloneTLS(connect.TLSConfig)
	connect.Sentinel.TopologyRefreshInterval = sentinelRefresh
	return connect, nil
}

// isHostPort reports whether an address can be dialed.
func isHostPort(address string) bool {
	host, port, err := net.SplitHostPort(address)
	if err != nil || host == "" || strings.ContainsAny(host, "@/ ") {
		return false
	}
	number, err := strconv.ParseUint(port, 10, 16)
	return err == nil && number > 0
}

// namesDatabase reports whether an address is a URL that says which database, be it 0.
func namesDatabase(address string) bool {
	if !strings.Contains(address, "://") {
		return false
	}
	at, err := url.Parse(address)
	if err != nil {
		return false
	}
	return at.Query().Has("db") || at.Scheme != "unix" && strings.Contains(at.Path, "/")
}

func cloneTLS(config *tls.Config) *tls.Config {
	if config == nil {
		return nil
	}
	return config.Clone()
}

// secretsOf is what must never be in an error or a log.
func secretsOf(connect rueidis.ClientOption) []string {
	if connect.Password == "" {
		return nil
	}
	return []string{connect.Password}
}
