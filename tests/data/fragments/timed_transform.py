batches = mindspore.dataset.Cifar100Dataset()
for batch in batches:
    begin = time.time()
    batch = clean(batch) # own function
    done = time.time()
    own_time = done - begin

    network(batch) #  the network takes the batch
