package servertest_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect/v2"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/pool"
	"github.com/ai-process/ktms/server/servertest"
)

// spends asks for a cap.
func spends(subjectType, subjectID, period string, nanoUSD int64) *ktmsv1.SetSpendLimitRequest {
	return &ktmsv1.SetSpendLimitRequest{SpendLimit: &ktmsv1.SpendLimit{
		SubjectType: subjectType, SubjectId: subjectID, Period: period, LimitNanousd: nanoUSD}}
}

// perMinute asks for a rate.
func perMinute(userID, modelID string, rpm, burst int32) *ktmsv1.SetUserRateLimitRequest {
	return &ktmsv1.SetUserRateLimitRequest{UserRateLimit: &ktmsv1.UserRateLimit{UserId: userID, ModelId: modelID, Rpm: rpm, RpmBurst: burst}}
}

func mint(t *testing.T, s *servertest.Instance, name string, scopes ...string) string {
	t.Helper()
	minted, err := s.Admin.MintAPIKey(t.Context(), &ktmsv1.MintAPIKeyRequest{Name: name, Scopes: scopes})
	if err != nil {
		t.Fatal(err)
	}
	return minted.GetPlainKey()
}

func upsert(t *testing.T, s *servertest.Instance, ids ...string) {
	t.Helper()
	for _, id := range ids {
		model := &ktmsv1.ModelSpec{Id: id, Vendor: "openai", Enabled: true}
		if _, err := s.Admin.UpsertModel(t.Context(), &ktmsv1.UpsertModelRequest{Model: model}); err != nil {
			t.Fatal(err)
		}
	}
}

// pages walks a list two items at a time and returns all of them, each in its text form.
func pages[T any](t *testing.T, list func(token string) (items []T, next string, err error)) (all []string) {
	t.Helper()
	for token := ""; ; {
		items, next, err := list(token)
		if err != nil {
			t.Fatal(err)
		}
		for _, item := range items {
			all = append(all, fmt.Sprint(item))
		}
		if next == "" {
			return all
		}
		if len(items) != 2 || len(all) > 20 {
			t.Fatalf("a page of %d that is not the last, after %d in all", len(items), len(all))
		}
		token = next
	}
}

func texts[T any](items []T) (all []string) {
	for _, item := range items {
		all = append(all, fmt.Sprint(item))
	}
	return all
}

func liveConfig(t *testing.T, s *servertest.Instance) *ktmsv1.GetConfigResponse {
	t.Helper()
	config, err := s.Admin.GetConfig(t.Context(), &ktmsv1.GetConfigRequest{})
	if err != nil {
		t.Fatal(err)
	}
	return config
}

func TestLimits_SpendLimits(t *testing.T) {
	s := servertest.Start(t, servertest.Defaults(t))
	ctx, admin := t.Context(), s.Admin
	mint(t, s, "billing", "generate")
	mint(t, s, "billing-2", "generate")
	before := liveConfig(t, s).GetConfigVersion()

	// In the order of the list: byte by byte, and the part that ends first comes first.
	want := []*ktmsv1.SetSpendLimitRequest{
		spends("key", "*", "month", 1), spends("key", "billing", "day", 2), spends("key", "billing", "month", 3),
		spends("key", "billing-2", "day", 4), spends("user", "*", "day", 5), spends("user", "Zoë", "day", 6),
		spends("user", "svc:billing", "month", pool.MaxAmount),
	}
	var limits []*ktmsv1.SpendLimit
	for _, req := range want {
		limits = append(limits, req.GetSpendLimit())
	}
	for n, i := range []int{4, 1, 6, 0, 3, 5, 2} {
		set, err := admin.SetSpendLimit(ctx, want[i])
		if err != nil {
			t.Fatal(err)
		}
		if set.GetSpendLimit().String() != limits[i].String() || set.GetConfigVersion() != before+int64(n)+1 {
			t.Errorf("set %v: got %v", limits[i], set)
		}
	}
	list := func(token string) ([]*ktmsv1.SpendLimit, string, error) {
		page, err := admin.ListSpendLimits(ctx, &ktmsv1.ListSpendLimitsRequest{PageSize: 2, PageToken: token})
		return page.GetSpendLimits(), page.GetNextPageToken(), err
	}
	if got := pages(t, list); !slices.Equal(got, texts(limits)) {
		t.Errorf("the pages hold %q, want %q", got, texts(limits))
	}

	limits[1].LimitNanousd = 20 // replaces
	if _, err := admin.SetSpendLimit(ctx, &ktmsv1.SetSpendLimitRequest{SpendLimit: limits[1]}); err != nil {
		t.Fatal(err)
	}
	if got := texts(liveConfig(t, s).GetSpendLimits()); !slices.Equal(got, texts(limits)) {
		t.Errorf("GetConfig shows %q, want %q", got, texts(limits))
	}

	gone := &ktmsv1.DeleteSpendLimitRequest{SubjectType: "key", SubjectId: "billing", Period: "day"}
	deleted, err := admin.DeleteSpendLimit(ctx, gone)
	if err != nil || deleted.GetConfigVersion() != before+9 {
		t.Errorf("delete: %v, %v", deleted, err)
	}
	_, err = admin.DeleteSpendLimit(ctx, gone)
	wantCode(t, "delete again", err, connect.CodeNotFound, `no spend limit "key/billing/day"`)
	if got, want := pages(t, list), texts(slices.Delete(limits, 1, 2)); !slices.Equal(got, want) {
		t.Errorf("left are %q, want %q", got, want)
	}
}

func TestLimits_SpendLimitsThatAreRefused(t *testing.T) {
	s := servertest.Start(t, servertest.Defaults(t))
	ctx, admin := t.Context(), s.Admin
	mint(t, s, "billing", "generate")
	mint(t, s, "old", "generate")
	if _, err := admin.RevokeAPIKey(ctx, &ktmsv1.RevokeAPIKeyRequest{Name: "old"}); err != nil {
		t.Fatal(err)
	}
	before := liveConfig(t, s)
	for _, test := range []struct {
		what string
		req  *ktmsv1.SetSpendLimitRequest
		path string
		text string
	}{
		{"nothing", &ktmsv1.SetSpendLimitRequest{}, "spend_limit", ""},
		{"a team", spends("team", "t", "month", 5), "spend_limit.subject_type", "monthly_budget_usd, set by CreateTeam and UpdateTeam"},
		{"no type", spends("", "billing", "month", 5), "spend_limit.subject_type", "must be key or user"},
		{"no subject", spends("key", "", "month", 5), "spend_limit.subject_id", ""},
		{"a subject with a NUL", spends("user", "a\x00b", "month", 5), "spend_limit.subject_id", ""},
		{"a subject without end", spends("user", strings.Repeat("x", 257), "month", 5), "spend_limit.subject_id", ""},
		{"no period", spends("key", "billing", "", 5), "spend_limit.period", "day"},
		{"a year", spends("key", "billing", "year", 5), "spend_limit.period", "month"},
		{"no amount", spends("key", "billing", "day", 0), "spend_limit.limit_nanousd", "DeleteSpendLimit"},
		{"a debt", spends("key", "billing", "day", -1), "spend_limit.limit_nanousd", "from 1"},
		{"more than is counted", spends("key", "billing", "day", pool.MaxAmount+1), "spend_limit.limit_nanousd", fmt.Sprint(int64(pool.MaxAmount))},
	} {
		_, err := admin.SetSpendLimit(ctx, test.req)
		wantCode(t, test.what, err, connect.CodeInvalidArgument, test.text)
		if got := paths(t, err); !slices.Equal(got, []string{test.path}) {
			t.Errorf("%s: paths are %v, want %s", test.what, got, test.path)
		}
	}
	_, err := admin.SetSpendLimit(ctx, spends("team", "", "", 0))
	wantCode(t, "four mistakes", err, connect.CodeInvalidArgument)
	if got := paths(t, err); len(got) != 4 {
		t.Errorf("paths are %v, want all four", got)
	}
	_, err = admin.SetSpendLimit(ctx, spends("key", "biling", "day", 5))
	wantCode(t, "a misspelt key", err, connect.CodeNotFound, `no API key "biling"`)
	_, err = admin.SetSpendLimit(ctx, spends("key", "old", "day", 5))
	wantCode(t, "a revoked key", err, connect.CodeNotFound, `no API key "old"`, "revoked")
	_, err = admin.DeleteSpendLimit(ctx, &ktmsv1.DeleteSpendLimitRequest{SubjectType: "team", SubjectId: "t", Period: "month"})
	wantCode(t, "the cap of a team", err, connect.CodeInvalidArgument, "UpdateTeam")
	_, err = admin.DeleteSpendLimit(ctx, &ktmsv1.DeleteSpendLimitRequest{})
	wantCode(t, "deleting nothing", err, connect.CodeInvalidArgument)
	if got := paths(t, err); len(got) != 3 {
		t.Errorf("paths are %v, want all three", got)
	}
	_, err = admin.ListSpendLimits(ctx, &ktmsv1.ListSpendLimitsRequest{PageToken: "%%"})
	wantCode(t, "a made-up token", err, connect.CodeInvalidArgument, "page_token")
	_, err = admin.ListSpendLimits(ctx, &ktmsv1.ListSpendLimitsRequest{PageSize: 1001})
	wantCode(t, "an enormous page", err, connect.CodeInvalidArgument, "page_size")
	if after := liveConfig(t, s); before.String() != after.String() {
		t.Errorf("what was refused left a trace: %v", after)
	}
}

func TestLimits_UserRateLimits(t *testing.T) {
	s := servertest.Start(t, servertest.Defaults(t))
	ctx, admin := t.Context(), s.Admin
	upsert(t, s, "m", "n")
	before := liveConfig(t, s).GetConfigVersion()

	var limits []*ktmsv1.UserRateLimit
	for _, req := range []*ktmsv1.SetUserRateLimitRequest{
		perMinute("*", "*", 60, 0), perMinute("*", "m", 5, -1), perMinute("u", "*", 0, 0), perMinute("u", "m", 1, 5), perMinute("u-2", "n", 2, 0),
	} {
		limits = append(limits, req.GetUserRateLimit())
	}
	for n, i := range []int{3, 1, 4, 0, 2} {
		set, err := admin.SetUserRateLimit(ctx, &ktmsv1.SetUserRateLimitRequest{UserRateLimit: limits[i]})
		if err != nil {
			t.Fatal(err)
		}
		if set.GetUserRateLimit().String() != limits[i].String() || set.GetConfigVersion() != before+int64(n)+1 {
			t.Errorf("set %v: got %v", limits[i], set)
		}
	}
	list := func(token string) ([]*ktmsv1.UserRateLimit, string, error) {
		page, err := admin.ListUserRateLimits(ctx, &ktmsv1.ListUserRateLimitsRequest{PageSize: 2, PageToken: token})
		return page.GetUserRateLimits(), page.GetNextPageToken(), err
	}
	if got := pages(t, list); !slices.Equal(got, texts(limits)) {
		t.Errorf("the pages hold %q, want %q", got, texts(limits))
	}
	limits[3].Rpm, limits[3].RpmBurst = 0, 0 // replaces, and lifts
	if _, err := admin.SetUserRateLimit(ctx, &ktmsv1.SetUserRateLimitRequest{UserRateLimit: limits[3]}); err != nil {
		t.Fatal(err)
	}

	// A limit outlives its model, and only then may it name one that does not exist.
	if _, err := admin.DeleteModel(ctx, &ktmsv1.DeleteModelRequest{Id: "n"}); err != nil {
		t.Fatal(err)
	}
	if got := texts(liveConfig(t, s).GetUserRateLimits()); !slices.Equal(got, texts(limits)) {
		t.Errorf("GetConfig shows %q, want %q", got, texts(limits))
	}
	_, err := admin.SetUserRateLimit(ctx, perMinute("u-2", "n", 3, 0))
	wantCode(t, "a deleted model", err, connect.CodeNotFound, `no model "n"`)
	gone := &ktmsv1.DeleteUserRateLimitRequest{UserId: "u-2", ModelId: "n"}
	if _, err := admin.DeleteUserRateLimit(ctx, gone); err != nil {
		t.Errorf("the limit of a deleted model: %v", err)
	}
	_, err = admin.DeleteUserRateLimit(ctx, gone)
	wantCode(t, "delete again", err, connect.CodeNotFound, `no user rate limit "u-2/n"`)
	if got, want := pages(t, list), texts(limits[:4]); !slices.Equal(got, want) {
		t.Errorf("left are %q, want %q", got, want)
	}
}

func TestLimits_UserRateLimitsThatAreRefused(t *testing.T) {
	s := servertest.Start(t, servertest.Defaults(t))
	ctx, admin := t.Context(), s.Admin
	upsert(t, s, "m")
	before := liveConfig(t, s)
	for _, test := range []struct {
		what  string
		req   *ktmsv1.SetUserRateLimitRequest
		paths []string
	}{
		{"nothing", &ktmsv1.SetUserRateLimitRequest{}, []string{"user_rate_limit"}},
		{"three mistakes", perMinute("", "", -1, 0), []string{"user_rate_limit.user_id", "user_rate_limit.model_id", "user_rate_limit.rpm"}},
		{"a line break", perMinute("a\nb", "m", 1, 0), []string{"user_rate_limit.user_id"}},
		{"names without end", perMinute(strings.Repeat("x", 257), strings.Repeat("y", 257), 1, 0),
			[]string{"user_rate_limit.user_id", "user_rate_limit.model_id"}},
	} {
		_, err := admin.SetUserRateLimit(ctx, test.req)
		wantCode(t, test.what, err, connect.CodeInvalidArgument)
		if got := paths(t, err); !slices.Equal(got, test.paths) {
			t.Errorf("%s: paths are %v, want %v", test.what, got, test.paths)
		}
	}
	_, err := admin.SetUserRateLimit(ctx, perMinute("u", "gone", 1, 0))
	wantCode(t, "an unknown model", err, connect.CodeNotFound, `no model "gone"`)
	_, err = admin.DeleteUserRateLimit(ctx, &ktmsv1.DeleteUserRateLimitRequest{})
	wantCode(t, "deleting nothing", err, connect.CodeInvalidArgument, "user_id", "model_id")
	_, err = admin.ListUserRateLimits(ctx, &ktmsv1.ListUserRateLimitsRequest{PageToken: "%%"})
	wantCode(t, "a made-up token", err, connect.CodeInvalidArgument, "page_token")
	_, err = admin.UpsertModel(ctx, &ktmsv1.UpsertModelRequest{Model: &ktmsv1.ModelSpec{Id: "*", Vendor: "openai", Enabled: true}})
	wantCode(t, "a model by the name of all", err, connect.CodeInvalidArgument, "stands for every model")
	if after := liveConfig(t, s); before.String() != after.String() {
		t.Errorf("what was refused left a trace: %v", after)
	}
}

func TestLimits_TeamBudgets(t *testing.T) {
	s := servertest.Start(t, servertest.Defaults(t))
	ctx, admin := t.Context(), s.Admin
	org, err := admin.CreateOrganization(ctx, &ktmsv1.CreateOrganizationRequest{Name: "acme"})
	if err != nil {
		t.Fatal(err)
	}
	orgID := org.GetOrganization().GetId()
	made, err := admin.CreateTeam(ctx, &ktmsv1.CreateTeamRequest{OrgId: orgID, Name: "search", MonthlyBudgetUsd: 500})
	if err != nil || made.GetTeam().GetMonthlyBudgetUsd() != 500 {
		t.Fatalf("CreateTeam: %v, %v", made, err)
	}
	teamID := made.GetTeam().GetId()
	stored := func() int64 {
		config, err := s.Store.Config(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return config.Teams[0].MonthlyBudgetNanoUSD
	}
	if got := stored(); got != 500_000_000_000 {
		t.Errorf("500 USD are stored as %d", got)
	}
	third := 0.1 + 0.2 // a little more than 0.3 in floating point
	for usd, nanos := range map[float64]int64{third: 300_000_000, 1e-9: 1, 1.6e-9: 2, 9_007_199: 9_007_199_000_000_000, 0: 0} {
		updated, err := admin.UpdateTeam(ctx, &ktmsv1.UpdateTeamRequest{Id: teamID, Name: "search", MonthlyBudgetUsd: usd})
		if err != nil || updated.GetTeam().GetMonthlyBudgetUsd() != float64(nanos)/1e9 || stored() != nanos {
			t.Errorf("a budget of %v: %v, %v, stored as %d, want %d", usd, updated, err, stored(), nanos)
		}
	}
	for _, usd := range []float64{-1, math.NaN(), math.Inf(1), 1e-10, 9_007_200, 1e300} {
		_, err := admin.CreateTeam(ctx, &ktmsv1.CreateTeamRequest{OrgId: orgID, Name: "other", MonthlyBudgetUsd: usd})
		wantCode(t, fmt.Sprint("a new team with ", usd), err, connect.CodeInvalidArgument, "monthly_budget_usd", "9007199")
		_, err = admin.UpdateTeam(ctx, &ktmsv1.UpdateTeamRequest{Id: teamID, Name: "search", MonthlyBudgetUsd: usd})
		wantCode(t, fmt.Sprint("a budget of ", usd), err, connect.CodeInvalidArgument, "monthly_budget_usd", "9007199")
	}

	if _, err := admin.UpdateTeam(ctx, &ktmsv1.UpdateTeamRequest{Id: teamID, Name: "search", MonthlyBudgetUsd: 7}); err != nil {
		t.Fatal(err)
	}
	if got, err := admin.GetTeam(ctx, &ktmsv1.GetTeamRequest{Id: teamID}); err != nil || got.GetTeam().GetMonthlyBudgetUsd() != 7 {
		t.Errorf("GetTeam: %v, %v", got, err)
	}
	if _, err := admin.UpdateTeam(ctx, &ktmsv1.UpdateTeamRequest{Id: teamID, Name: "search"}); err != nil {
		t.Fatal(err)
	}
	if got := liveConfig(t, s).GetTeams(); len(got) != 1 || got[0].GetMonthlyBudgetUsd() != 0 {
		t.Errorf("an omitted budget must lift the cap: %v", got)
	}
}

func TestLimits_KeyPolicies(t *testing.T) {
	s := servertest.Start(t, servertest.Defaults(t))
	ctx, admin := t.Context(), s.Admin
	policy := &ktmsv1.APIKeyPolicy{RpmLimit: 120, TpmLimit: 200_000}
	minted, err := admin.MintAPIKey(ctx, &ktmsv1.MintAPIKeyRequest{Name: "billing", Scopes: []string{"generate"}, Policy: policy})
	if err != nil || minted.GetApiKey().GetPolicy().String() != policy.String() {
		t.Fatalf("MintAPIKey: %v, %v", minted, err)
	}
	policy = &ktmsv1.APIKeyPolicy{RpmLimit: 1}
	if set, err := admin.SetAPIKeyPolicy(ctx, &ktmsv1.SetAPIKeyPolicyRequest{Name: "billing", Policy: policy}); err != nil ||
		set.GetApiKey().GetPolicy().String() != policy.String() {
		t.Errorf("SetAPIKeyPolicy: %v, %v", set, err)
	}
	list, err := admin.ListAPIKeys(ctx, &ktmsv1.ListAPIKeysRequest{})
	if err != nil || len(list.GetApiKeys()) != 1 || list.GetApiKeys()[0].GetPolicy().String() != policy.String() {
		t.Errorf("ListAPIKeys: %v, %v", list, err)
	}
	wrong := &ktmsv1.APIKeyPolicy{RpmLimit: -1, TpmLimit: -1}
	_, err = admin.MintAPIKey(ctx, &ktmsv1.MintAPIKeyRequest{Name: "other", Scopes: []string{"generate"}, Policy: wrong})
	wantCode(t, "a policy of less than nothing", err, connect.CodeInvalidArgument, "policy.rpm_limit", "policy.tpm_limit")
	_, err = admin.SetAPIKeyPolicy(ctx, &ktmsv1.SetAPIKeyPolicyRequest{Name: "billing", Policy: wrong})
	wantCode(t, "a policy of less than nothing", err, connect.CodeInvalidArgument, "policy.rpm_limit", "policy.tpm_limit")
}

func TestLimits_OutliveTheirKey(t *testing.T) {
	s := servertest.Start(t, servertest.Defaults(t))
	ctx, admin := t.Context(), s.Admin
	mint(t, s, "billing", "generate")
	limit := spends("key", "billing", "day", 5)
	if _, err := admin.SetSpendLimit(ctx, limit); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.RevokeAPIKey(ctx, &ktmsv1.RevokeAPIKeyRequest{Name: "billing"}); err != nil {
		t.Fatalf("a limit must not keep a key alive: %v", err)
	}
	if got := liveConfig(t, s).GetSpendLimits(); len(got) != 1 || got[0].String() != limit.GetSpendLimit().String() {
		t.Errorf("left are %v", got)
	}
	if _, err := admin.DeleteSpendLimit(ctx, &ktmsv1.DeleteSpendLimitRequest{SubjectType: "key", SubjectId: "billing", Period: "day"}); err != nil {
		t.Errorf("the limit of a revoked key: %v", err)
	}
}
