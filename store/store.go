// Package store is the contract for what Keystone keeps: keys, node keys, vendor keys, models, rules, tenants and limits.
//
// Implementations are named by technology (postgres, sqlite) and run the suite in storetest. What is short-lived and
// shared (the counters behind limits, leases, nodes) belongs to package pool.
package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/netip"
	"time"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
)

// Errors that implementations return, wrapped with what was asked for.
var (
	// ErrNotFound says that no such row exists.
	ErrNotFound = errors.New("not found")
	// ErrExists says that a unique name or id is taken.
	ErrExists = errors.New("already exists")
	// ErrInUse says that a row cannot be deleted while others belong to it.
	ErrInUse = errors.New("still in use")
	// ErrUnavailable says that the database did not answer; the call may be repeated.
	ErrUnavailable = errors.New("storage unavailable")
)

// Key is a client key. The plain key is never stored.
type Key struct {
	ID   string
	Name string
	// Hash is the SHA-256 of the plain key.
	Hash [32]byte
	// Prefix is the start of the plain key, for people to recognise it by.
	Prefix string
	Scopes []string
	// OrgID and TeamID are empty for a key outside any tenant.
	OrgID  string
	TeamID string
	// Policy is never nil.
	Policy    *ktmsv1.APIKeyPolicy
	CreatedAt time.Time
	// RevokedAt is zero while the key is active.
	RevokedAt time.Time
}

// NodeKey lets one machine register itself as one node. The plain key is never stored.
type NodeKey struct {
	ID string
	// Name is unique among node keys, revoked ones included.
	Name string
	// NodeID is the one node that the key registers. Several active keys may have the same one, so that a key can be
	// replaced without a moment in which the node has none.
	NodeID string
	// Hash is the SHA-256 of the plain key.
	Hash [32]byte
	// Prefix is the start of the plain key, for people to recognise it by.
	Prefix string
	// AllowedModels is empty when the node may serve any model.
	AllowedModels []string
	// AllowedCIDRs are the networks that the node's endpoint may lie in beside public ones.
	AllowedCIDRs []netip.Prefix
	CreatedAt    time.Time
	// RevokedAt is zero while the key is active.
	RevokedAt time.Time
}

// VendorKey is one client key's credential for one vendor, sealed.
type VendorKey struct {
	KeyID   string
	KeyName string
	Vendor  string
	// Sealed is opaque to the store; package seal makes it with AAD as associated data.
	Sealed      []byte
	Fingerprint string
	UpdatedAt   time.Time
}

// AAD is the associated data that binds the sealed credential to its row, so that it cannot be moved to another one.
func (v VendorKey) AAD() []byte { return []byte("vendor_key\x00" + v.KeyID + "\x00" + v.Vendor) }

// Fingerprint identifies a credential without revealing it, so that a configuration file can be compared with what is
// stored.
func Fingerprint(vendor, plain string) string {
	sum := sha256.Sum256([]byte("ktms:" + vendor + ":" + plain))
	return hex.EncodeToString(sum[:8])
}

// Organization owns teams and keys.
type Organization struct {
	ID        string
	Name      string
	CreatedAt time.Time
}

// Team is a group of keys within an organization.
type Team struct {
	ID    string
	OrgID string
	Name  string
	// MonthlyBudgetNanoUSD caps all its keys together; 0 means no cap.
	MonthlyBudgetNanoUSD int64
	// AllowedModels is empty when any model is allowed.
	AllowedModels []string
	CreatedAt     time.Time
}

// Config is the whole routing configuration at one version. Readers must not change it.
type Config struct {
	Version int64
	// Models are ordered by id, Rules by falling priority, the rest by id or name.
	Models        []*ktmsv1.ModelSpec
	Rules         []*ktmsv1.RuleSpec
	Organizations []Organization
	Teams         []Team
	// VendorKeys holds those of active keys, ordered by key name and vendor.
	VendorKeys []VendorKey
	// SpendLimits are ordered by subject type, subject id and period.
	SpendLimits []*ktmsv1.SpendLimit
	// UserRateLimits are ordered by user id and model id.
	UserRateLimits []*ktmsv1.UserRateLimit
}

// Change says what one committed transaction touched.
type Change struct {
	// Version is the configuration's version after it; 0 when it is unknown (the feed lost its connection).
	Version int64
	// KeyHashes are the keys, those of clients and of nodes, whose stored state changed. Nil with All set means: assume every key did.
	KeyHashes [][32]byte
	All       bool
}

// Store keeps the configuration. Implementations are safe for concurrent use; each call is bounded by its ctx and by
// the store's own query timeout, whichever ends first.
type Store interface {
	Keys
	NodeKeys
	// Config reads the whole configuration in one consistent snapshot.
	Config(ctx context.Context) (*Config, error)
	// ConfigVersion reads the version alone; it rises with every committed change.
	ConfigVersion(ctx context.Context) (int64, error)
	// Update runs fn in one transaction that excludes every other Update, on any replica. When fn wrote anything and
	// returns nil, the version rises by one within the same transaction and every replica's feed learns of the change.
	// When fn wrote nothing, the version stays, no feed hears of it and the Change carries the version alone. When fn
	// fails, nothing is changed and its error is returned as it is. An Update within fn would wait for itself.
	Update(ctx context.Context, fn func(ctx context.Context, tx Tx) error) (Change, error)
	// Feed delivers the changes that others commit.
	Feed() Feed
	// Ping reports whether the database answers.
	Ping(ctx context.Context) error
	// Close releases every connection.
	Close()
}

// Keys is the read side of client keys, as the hot path needs it.
type Keys interface {
	// KeyByHash finds a key, a revoked one too. ErrNotFound when there is none.
	KeyByHash(ctx context.Context, hash [32]byte) (Key, error)
	// KeyByName finds a key, a revoked one too. ErrNotFound when there is none.
	KeyByName(ctx context.Context, name string) (Key, error)
	// ListKeys returns at most limit keys whose name sorts after the given one, by name.
	ListKeys(ctx context.Context, after string, limit int, includeRevoked bool) ([]Key, error)
}

// NodeKeys is the read side of node keys.
type NodeKeys interface {
	// NodeKeyByHash finds a key, a revoked one too. ErrNotFound when there is none.
	NodeKeyByHash(ctx context.Context, hash [32]byte) (NodeKey, error)
	// ListNodeKeys returns at most limit keys whose name sorts after the given one, by name.
	ListNodeKeys(ctx context.Context, after string, limit int, includeRevoked bool) ([]NodeKey, error)
}

// Feed delivers committed changes to this process.
type Feed interface {
	// Run delivers changes until ctx ends, reconnecting by itself. It calls deliver from one goroutine. At its start and
	// after a lost connection it delivers Change{All: true}, since anything may have happened before.
	Run(ctx context.Context, deliver func(Change))
	// SeenUpTo returns an instant (of this machine's clock) before which every committed change has been delivered
	// and processed. A store without other writers returns now. Zero while nothing is proven.
	SeenUpTo() time.Time
}

// Tx is one Update in progress. Reads see the transaction's own writes. After ErrNotFound, ErrExists or ErrInUse the
// transaction goes on: fn may handle the error and write something else.
type Tx interface {
	Config(ctx context.Context) (*Config, error)

	// KeyByName and KeyByID return ErrNotFound when there is none.
	KeyByName(ctx context.Context, name string) (Key, error)
	KeyByID(ctx context.Context, id string) (Key, error)
	// InsertKey returns ErrExists when the name, the id or the hash is taken, ErrNotFound when the organization or its
	// team does not exist.
	InsertKey(ctx context.Context, key Key) error
	// SetKeyPolicy and RevokeKey return ErrNotFound. Revoking a revoked key keeps the first time.
	SetKeyPolicy(ctx context.Context, id string, policy *ktmsv1.APIKeyPolicy) error
	RevokeKey(ctx context.Context, id string, at time.Time) error
	// ActiveKeys counts the active keys of an organization, or of one of its teams when teamID is set.
	ActiveKeys(ctx context.Context, orgID, teamID string) (int, error)
	// DetachKeys removes the tenant from the revoked keys of an organization. With teamID set it removes the team alone
	// from those of the team: they stay with the organization.
	DetachKeys(ctx context.Context, orgID, teamID string) error

	// NodeKeyByName finds a key, a revoked one too. ErrNotFound when there is none.
	NodeKeyByName(ctx context.Context, name string) (NodeKey, error)
	// InsertNodeKey returns ErrExists when the name, the id or the hash is taken.
	InsertNodeKey(ctx context.Context, key NodeKey) error
	// RevokeNodeKey returns ErrNotFound. Revoking a revoked key keeps the first time.
	RevokeNodeKey(ctx context.Context, id string, at time.Time) error

	// AllVendorKeys returns those of revoked keys too, locked against other writers until the transaction ends.
	AllVendorKeys(ctx context.Context) ([]VendorKey, error)
	// PutVendorKey inserts or replaces. ErrNotFound when the client key does not exist.
	PutVendorKey(ctx context.Context, key VendorKey) error
	// DeleteVendorKey returns ErrNotFound when there is none.
	DeleteVendorKey(ctx context.Context, keyID, vendor string) error

	// PutModel inserts or replaces.
	PutModel(ctx context.Context, model *ktmsv1.ModelSpec) error
	// DeleteModel returns ErrNotFound when there is none.
	DeleteModel(ctx context.Context, id string) error
	// ReplaceRules swaps the whole set.
	ReplaceRules(ctx context.Context, rules []*ktmsv1.RuleSpec) error

	// InsertOrganization and UpdateOrganization return ErrExists when the name is taken; UpdateOrganization and
	// DeleteOrganization return ErrNotFound. DeleteOrganization returns ErrInUse while teams or keys belong to it.
	InsertOrganization(ctx context.Context, org Organization) error
	UpdateOrganization(ctx context.Context, org Organization) error
	DeleteOrganization(ctx context.Context, id string) error
	// InsertTeam and UpdateTeam return ErrExists when the organization has a team of that name; InsertTeam returns
	// ErrNotFound when the organization does not exist, UpdateTeam and DeleteTeam when the team does not. UpdateTeam
	// keeps the organization. DeleteTeam returns ErrInUse while keys belong to it.
	InsertTeam(ctx context.Context, team Team) error
	UpdateTeam(ctx context.Context, team Team) error
	DeleteTeam(ctx context.Context, id string) error

	// PutSpendLimit and PutUserRateLimit insert or replace. Whom a limit names need not exist: it stays when a key or a
	// model goes. DeleteSpendLimit and DeleteUserRateLimit return ErrNotFound when there is none.
	PutSpendLimit(ctx context.Context, limit *ktmsv1.SpendLimit) error
	DeleteSpendLimit(ctx context.Context, subjectType, subjectID, period string) error
	PutUserRateLimit(ctx context.Context, limit *ktmsv1.UserRateLimit) error
	DeleteUserRateLimit(ctx context.Context, userID, modelID string) error
}
