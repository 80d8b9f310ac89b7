package pooltest

var leaseTests, settleTests, severalTests, moneyTests []test
