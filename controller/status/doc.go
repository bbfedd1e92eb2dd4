// Package status keeps the status of objects equal to what the aggregators report.
//
// What a status should be is decided by pure functions of the object, its neighbours and the view of the
// aggregators; a Writer polls, asks them, and patches what differs. Times alone are no difference.
package status
