package redis

import (
	"crypto/tls"
	"errors"
	"net"
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
		for _, address := range connect.InitAddress {
			if !isHostPort(address) {
				return connect, errAddress
			}
		}
	}
	if connect.Password == "" {
		connect.Password = options.Password
	}
	if connect.SelectDB == 0 {
		connect.SelectDB = options.DB
	}

	// Whoever may have been answered is never asked twice: an admission would be booked twice.
	connect.DisableRetry = true
	connect.DisableCache = true // nothing is cached, and older servers cannot
	connect.ClientName = "ktms"
	connect.Dialer.Timeout = options.Timeout
	connect.ConnWriteTimeout = options.Timeout
	connect.Sentinel.Dialer.Timeout = options.Timeout
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
