package pooltest

var moneyTests []test
